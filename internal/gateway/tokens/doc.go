// Package tokens lets users in with tokens that the gateway itself knows how to judge: those of OpenID Connect issuers, and those that
// a webhook knows. The flags and files are kube-apiserver's. All other tokens are the hub's to judge.
package tokens
