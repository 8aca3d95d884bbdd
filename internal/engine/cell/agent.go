package cell

import "github.com/cellplane/cellplane/api/names"

// ofAgent returns what the agent of a cluster needs: its Cluster, its Works, and what interprets the objects in them.
func ofAgent(parts []part, cluster string) []part {
	var needed []part
	for _, p := range parts {
		switch p.resource {
		case "clusters":
			p.named = cluster
		case "works":
			p.inside = names.ExecutionNamespace(cluster)
		case "resourceinterpretercustomizations", "resourceinterpreterwebhookconfigurations":
		default:
			continue
		}
		needed = append(needed, p)
	}
	return needed
}

// replacesWork reports whether a Work takes the place of one in another cell. A template that moves gets a new Work in its new cell; the old one is
// frozen before, and stays for a while.
func replacesWork(before, now *Work) bool {
	if before.Frozen != now.Frozen {
		return before.Frozen
	}
	return now.Created >= before.Created
}
