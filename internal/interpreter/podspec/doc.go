// Package podspec returns what a pod needs: its resource and node requirements, and the objects it refers to. It
// reads pod specs in unstructured objects and converts only the fields it needs.
package podspec
