// Package cronscaler scales templates, and sets the limits of FederatedHPAs, on a schedule: it acts on CronFederatedHPAs.
//
// The engine of the cell that stores a CronFederatedHPA runs its rules. The target may be in another cell and is written through the gateway, whose guards hold. When
// a rule runs next is in the status. So a run that is due while the leader changes, or while the CronFederatedHPA moves to another cell, is made up for if that takes
// less than a minute. Runs that were missed for longer are skipped. A crash between a run and the write of the status repeats the run, which sets the same value.
package cronscaler
