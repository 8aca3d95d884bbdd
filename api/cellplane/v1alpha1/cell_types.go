package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cell is one control plane of the federation: an etcd, an API server and an engine. It says how the cell is
// reached. The CellTopology decides whether the cell holds objects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=cells,scope=Cluster,categories={cellplane}
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Templates",type=integer,JSONPath=`.status.objects.templates`
// +kubebuilder:printcolumn:name="Backup-Lag",type=date,JSONPath=`.status.backup.upToDateAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Server",type=string,priority=1,JSONPath=`.spec.endpoint.server`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 48",message="metadata.name must be a DNS label of at most 48 characters, as it becomes part of keys, labels and user names"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'hub'",message="metadata.name must not be hub, which stands for the hub itself"
type Cell struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says how the cell is reached.
	// +required
	Spec CellSpec `json:"spec"`

	// Status is the state of the cell.
	// +optional
	Status CellStatus `json:"status,omitzero"`
}

// CellList is a list of Cell.
//
// +kubebuilder:object:root=true
type CellList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cell `json:"items"`
}

// CellSpec says how a cell is reached.
type CellSpec struct {
	// Endpoint is the cell's API server.
	// +required
	Endpoint CellEndpoint `json:"endpoint"`

	// Credentials authenticate gateways and controllers.
	// +required
	Credentials CellCredentials `json:"credentials"`

	// Etcd is the cell's store. The mover and the backup controller copy objects from store to store.
	// +required
	Etcd CellEtcd `json:"etcd"`

	// Weight is the initial weight of the cell in a CellTopology. Later changes have no effect; the weight in the
	// topology counts.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=1
	Weight int32 `json:"weight,omitempty"`
}

// CellEndpoint is an API server.
type CellEndpoint struct {
	// Server is the https URL of the API server.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && size(url(self).getHost()) > 0",message="server must be an https URL with a host"
	Server string `json:"server"`

	// CABundle holds the PEM certificates that verify the API server.
	// +required
	// +kubebuilder:validation:MinLength=1
	CABundle []byte `json:"caBundle"`

	// ServerName is the name in the API server's certificate, when it differs from the host of the URL.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`

	// APIServers is how many API servers the cell has behind this address; one if it is not set. A change of cells waits
	// until each of them refuses requests that were routed by an older topology, also one that does not answer at present.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	APIServers int32 `json:"apiServers,omitempty"`
}

// CellCredentials authenticate gateways and controllers to a cell.
type CellCredentials struct {
	// SecretRef points at a Secret of type kubernetes.io/tls with the client certificate of the authenticating proxy and
	// of the cell's controllers.
	// +required
	SecretRef SecretReference `json:"secretRef"`
}

// CellEtcd is the store of a cell.
type CellEtcd struct {
	// Endpoints are the https URLs of the members.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.all(e, isURL(e) && url(e).getScheme() == 'https' && size(url(e).getHost()) > 0)",message="endpoints must be https URLs with a host"
	Endpoints []string `json:"endpoints"`

	// SecretRef points at a Secret with tls.crt, tls.key and ca.crt for the store.
	// +required
	SecretRef SecretReference `json:"secretRef"`

	// Prefix is the key prefix of the API server's objects. It cannot be changed.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="prefix cannot be changed: the objects would be lost from view"
	// +kubebuilder:default="/registry"
	Prefix string `json:"prefix,omitempty"`

	// Encryption is how the API servers of the cell encrypt what they store. Without it they store everything as it is.
	// +optional
	Encryption *CellEncryption `json:"encryption,omitempty"`
}

// CellEncryption is the encryption at rest of a cell.
type CellEncryption struct {
	// SecretRef points at a Secret with the EncryptionConfiguration of the cell's API servers in its key
	// encryption.yaml. It must have all keys with which anything in the store is encrypted. Their order does not
	// matter: what is written gets the key that the API servers use. The endpoint of a KMS plug-in is the one that the
	// hub manager reaches.
	// +required
	SecretRef SecretReference `json:"secretRef"`

	// AllowUnencryptedCopies lets objects that this cell encrypts move to, and be backed up in, cells that store them
	// unencrypted. Otherwise that is refused.
	// +optional
	AllowUnencryptedCopies bool `json:"allowUnencryptedCopies,omitempty"`
}

// SecretReference points at a Secret on the hub.
type SecretReference struct {
	// Namespace of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// CellStatus is the state of a cell.
type CellStatus struct {
	// ObservedGeneration is the generation that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready, Fenced, BackedUp and StoreSpace.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Version of the API server.
	// +optional
	Version string `json:"version,omitempty"`

	// Objects counts the objects in the cell.
	// +optional
	Objects *CellObjects `json:"objects,omitempty"`

	// Backup is the state of the cell's backup.
	// +optional
	Backup *CellBackup `json:"backup,omitempty"`
}

// CellObjects counts the objects in a cell.
type CellObjects struct {
	// Templates is the number of federated objects.
	// +optional
	Templates int64 `json:"templates,omitempty"`

	// Bindings is the number of resource bindings.
	// +optional
	Bindings int64 `json:"bindings,omitempty"`

	// Works is the number of works.
	// +optional
	Works int64 `json:"works,omitempty"`
}

// CellBackup is the state of a cell's backup.
type CellBackup struct {
	// UpToDateAt is the time up to which every write is backed up. Its age is the lag, which bounds what the loss
	// of the cell can lose.
	// +optional
	UpToDateAt *metav1.Time `json:"upToDateAt,omitempty"`

	// Revision of the cell's store up to which every write is backed up.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// PendingKeys is the number of keys known to have changed since.
	// +optional
	PendingKeys int64 `json:"pendingKeys,omitempty"`
}
