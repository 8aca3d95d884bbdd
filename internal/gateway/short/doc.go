// Package short sends short requests on HTTP/1.1 connections that carry one request at a time.
package short
