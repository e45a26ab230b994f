// The API's document, with forms to try it.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  defaultModelsExpandDepth: -1, // the schemas stand at each operation
  validatorUrl: null, // Swagger UI's own validator is another site's
});
