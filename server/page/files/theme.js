// Light, dark, or as the system has it. A classic script in the head, so that no page flashes in the wrong colours.
(() => {
  const CHOICES = ["system", "light", "dark"];

  const stored = () => {
    const theme = localStorage.getItem("unprm-theme");
    return CHOICES.includes(theme) ? theme : "system";
  };

  const apply = () => {
    document.documentElement.style.colorScheme = stored() === "system" ? "" : stored();
  };

  apply();
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => {
      button.textContent = `Colours: ${stored()}`;
    };
    name();
    button.addEventListener("click", () => {
      localStorage.setItem("unprm-theme", CHOICES[(CHOICES.indexOf(stored()) + 1) % CHOICES.length]);
      apply();
      name();
    });
  });
})();
