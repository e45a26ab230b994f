// The API's document, with forms to try it.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null, // Swagger UI's own validator is another site's
});
