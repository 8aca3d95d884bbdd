// Package podspec tells what a pod needs: resources and a fitting node on the one hand, the objects it refers to on
// the other. It reads pod specs as they appear in unstructured objects and converts no more of them than it needs.
package podspec
