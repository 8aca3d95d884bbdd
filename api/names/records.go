package names

// Records of scale-downs, which gateways write as ConfigMaps in the namespace of the control plane.
const (
	// ScaleDownRecordPrefix begins the name of a record.
	ScaleDownRecordPrefix = "scale-down-"
	// ScaleDownRecordDrops is the key of the decreases, as JSON.
	ScaleDownRecordDrops = "drops"
	// ScaleDownRecordExpires is the key of the time, in RFC 3339, after which no window needs the record.
	ScaleDownRecordExpires = "expires"
)

// The owners of slots, which the hub manager publishes as a Secret in the namespace of the control plane: gateways read Secrets there
// anyway. It contains nothing secret.
const (
	// SlotOwnersSecret is its name.
	SlotOwnersSecret = "cellplane-slot-owners"
	// SlotOwnersType is its type.
	SlotOwnersType = "cellplane.io/slot-owners"
)
