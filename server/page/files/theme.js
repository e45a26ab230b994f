// Light, dark, or as the system has it. A classic script in the head, so that no page flashes in the wrong colours.
(() => {
  const CHOICES = ["system", "light", "dark"];
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => CHOICES.find((theme) => theme === localStorage.getItem("unprm-theme")) ?? "system";
  const apply = () => {
    const theme = stored();
    const root = document.documentElement;
    root.style.colorScheme = theme === "system" ? "" : theme;
    root.classList.toggle("dark-mode", theme === "dark" || (theme === "system" && system.matches)); // Swagger UI's
    const button = document.getElementById("theme");
    if (button) Object.assign(button, { textContent: `◐ ${theme}`, title: `Colours: ${theme}` });
  };
  apply();
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      localStorage.setItem("unprm-theme", CHOICES[(CHOICES.indexOf(stored()) + 1) % CHOICES.length]);
      apply();
    });
  });
})();
