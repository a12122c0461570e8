// Package pki makes and reads what TLS needs: a private CA, certificates of servers
// with all their names, certificates of users with their role, and a server's TLS
// configuration, which reads its files again when they change.
//
// Keys are ECDSA P-256. A user's certificate has the user's name as its common name and
// the role as its organizational unit. Everything lies in one folder:
//
//	ca.crt, ca.key           the CA; the key is needed only to make certificates
//	server.crt, server.key   a server's
//	tokens.json              tokens, and which certificates were revoked (package auth)
package pki
