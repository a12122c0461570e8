"use strict";
// Gives the token for a cookie that this script cannot read, and goes to the site.
document.getElementById("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const said = document.getElementById("said");
  said.textContent = "";
  try {
    const answer = await fetch("/v1/session", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token: document.getElementById("token").value.trim() }),
    });
    if (answer.ok) {
      location.replace("/" + location.hash); // what was asked for before
      return;
    }
    said.textContent = (await answer.json()).message;
  } catch (e) {
    said.textContent = "The server does not answer: " + e.message;
  }
});
