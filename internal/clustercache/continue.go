package clustercache

// ContinueAfter returns the token of a list that continues after an object, at a version.
func ContinueAfter(version uint64, namespace, name string) string {
	return token{Version: version, Namespace: namespace, Name: name}.encode()
}
