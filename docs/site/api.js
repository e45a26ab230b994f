// The API's document in Swagger UI, dark where the site is dark.
const dark = () => document.documentElement.classList.toggle("dark-mode", document.body.dataset.mdColorScheme === "slate");
new MutationObserver(dark).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
dark();
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  defaultModelsExpandDepth: -1, // the schemas stand at each operation
  supportedSubmitMethods: [], // the site has no server to send requests to
  validatorUrl: null, // Swagger UI's own validator is another site's
});
