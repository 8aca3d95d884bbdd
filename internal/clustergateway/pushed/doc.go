// Package pushed holds the WorkloadMetrics that the agents of clusters push.
//
// They are in a clustercache.Store and nowhere else. After a start it is empty, and the first report of an agent, which
// continues what this replica does not know, is answered with the wish for everything. Metrics of a cluster whose agent
// is silent are removed.
package pushed
