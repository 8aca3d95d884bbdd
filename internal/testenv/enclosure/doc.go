// Package enclosure runs a test program once more in cgroups and namespaces of its own. Kubelets, container runtimes and containers that the tests start
// there see only these, and are gone when the tests end or are killed.
//
// There are three more processes than without it, each a child of the one before. All die with their parent.
//
//  1. The program, outside. It creates the cgroups, and removes them when all has ended.
//  2. joiner: enters the cgroups, and creates the namespaces with
//  3. the first process of the new namespaces, which mounts file systems, configures the network, adopts orphans, and starts
//  4. the tests.
package enclosure
