package doctor

import (
	"cmp"
	"slices"
)

// Severity says how urgent a finding is.
type Severity string

const (
	// Warning is what will become an error if nobody acts.
	Warning Severity = "Warning"
	// Error is what is wrong now.
	Error Severity = "Error"
)

// Kind is a kind of finding, and the name of its runbook.
type Kind string

// The kinds of findings.
const (
	CheckFailed             Kind = "check-failed"
	ControlPlaneUnreachable Kind = "control-plane-unreachable"
	CertificateExpires      Kind = "certificate-expires"
	VersionSkew             Kind = "version-skew"
	ClockSkew               Kind = "clock-skew"
	HubManagerSilent        Kind = "hub-manager-silent"
	GatewaySilent           Kind = "gateway-silent"
	CellFailed              Kind = "cell-failed"
	CellNotReady            Kind = "cell-not-ready"
	BackupBehind            Kind = "backup-behind"
	EtcdAlarm               Kind = "etcd-alarm"
	EtcdSpace               Kind = "etcd-space"
	QuotaNearlyUsed         Kind = "quota-nearly-used"
	ClusterNotReady         Kind = "cluster-not-ready"
	AgentSilent             Kind = "agent-silent"
	OrphanedWork            Kind = "orphaned-work"
	OrphanedNamespace       Kind = "orphaned-execution-namespace"
	LeftoverIdentity        Kind = "leftover-identity"
	FlowControlSaturated    Kind = "flow-control-saturated"
)

// advice is what to do, in a sentence.
var advice = map[Kind]string{
	CheckFailed:             "Read the error, and run the command again with an identity that may read what it names.",
	ControlPlaneUnreachable: "Start its API server, or correct the address and the credentials in its Cell; a cell that is lost can be failed over.",
	CertificateExpires:      "Renew it, and write it to where it is read; no restart is needed.",
	VersionSkew:             "Upgrade those that are behind: API servers of the hub and of cells may differ by one minor version, and only while upgrading.",
	ClockSkew:               "Synchronize the clocks of the machines, for example with chrony.",
	HubManagerSilent:        "Start a hub manager, and look into the log of the last one.",
	GatewaySilent:           "Start a gateway, or let its identity write Leases on the hub.",
	CellFailed:              "Let it return with `cellplane cells rejoin`, or delete its Cell.",
	CellNotReady:            "Read the condition Ready of the Cell, and repair what it names.",
	BackupBehind:            "Read the condition BackedUp of the Cell; until it is True, the loss of the cell loses data.",
	EtcdAlarm:               "Free space in the etcd and clear the alarm; replace a corrupt member.",
	EtcdSpace:               "Compact and defragment the etcd, raise its quota, or add a cell.",
	QuotaNearlyUsed:         "Raise the quota, or remove workloads of the namespace.",
	ClusterNotReady:         "Read the condition Ready of the Cluster, and repair the cluster or its credentials.",
	AgentSilent:             "Look into the log of the agent in the cluster; register it again if its certificate has ended.",
	OrphanedWork:            "Look whether its engine runs; delete the Work if its workload is not wanted any more.",
	OrphanedNamespace:       "Delete the namespace if the cluster has left for good.",
	LeftoverIdentity:        "Remove it: nobody should use it any more.",
	FlowControlSaturated:    "Find who sends the requests, and limit them with a FlowSchema, or run more API servers.",
}

// Finding is something that is wrong.
type Finding struct {
	Kind     Kind     `json:"kind"`
	Severity Severity `json:"severity"`
	// Object is what it is about.
	Object string `json:"object"`
	// Message says what is wrong, Advice what to do, Runbook where more is said.
	Message string `json:"message"`
	Advice  string `json:"advice"`
	Runbook string `json:"runbook"`
}

func find(kind Kind, severity Severity, object, message string) Finding {
	return Finding{Kind: kind, Severity: severity, Object: object, Message: message, Advice: advice[kind], Runbook: "docs/operations.md#" + string(kind)}
}

// Report is the result of an examination.
type Report struct {
	// Checks are the names of the checks that were made.
	Checks   []string  `json:"checks"`
	Findings []Finding `json:"findings"`
}

// Worst returns the highest severity, empty if nothing was found.
func (r *Report) Worst() Severity {
	var worst Severity
	for _, f := range r.Findings {
		if f.Severity == Error {
			return Error
		}
		worst = f.Severity
	}
	return worst
}

// sort puts errors first.
func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Object, b.Object))
	})
}
