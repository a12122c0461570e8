// Package signin asks who is at the other end of HTTP: by a token or a certificate with
// each request, or by a cookie that a page got for a token.
//
//	POST   /v1/session   {"token": "wm_…"} makes a session: a cookie, HttpOnly, SameSite=Strict
//	GET    /v1/session   who is signed in
//	DELETE /v1/session   signs out
//	GET    /signin       a page that asks for a token
//
// A session lasts half a day, and no longer than its token: one that is revoked ends at
// once. Sessions are kept in memory, by a hash of the cookie.
package signin
