// Package release lets workloads of the federation go: templates, bindings, Works and the policies that were made for
// them disappear, and members keep what they run, without labels and annotations of the federation.
//
// Every step leaves a state in which nothing can be deleted in a member, and says on the objects themselves how far it
// is. So a release can be interrupted at any point and repeated.
package release
