// Package tokens authenticates users by tokens of OpenID Connect issuers and of a webhook. The flags and files are those of
// kube-apiserver. All other tokens are verified by the hub.
package tokens
