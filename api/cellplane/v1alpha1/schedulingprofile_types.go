package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SchedulingProfile sets preferences among the clusters that a placement allows. A policy selects one by the
// annotation cellplane.io/scheduling-profile or by its schedulerName. Without a profile, the placement alone
// decides.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=schedulingprofiles,scope=Cluster,categories={cellplane}
// +kubebuilder:printcolumn:name="Sites",type=string,JSONPath=`.spec.sites.groupBy`
// +kubebuilder:printcolumn:name="Order",type=string,JSONPath=`.spec.sites.order`
// +kubebuilder:printcolumn:name="Reserve",type=integer,JSONPath=`.spec.sites.reservePercent`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SchedulingProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec holds the preferences.
	// +required
	Spec SchedulingProfileSpec `json:"spec"`
}

// SchedulingProfileList is a list of SchedulingProfile.
//
// +kubebuilder:object:root=true
type SchedulingProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SchedulingProfile `json:"items"`
}

// SchedulingProfileSpec holds preferences between sites and between the clusters of a site.
type SchedulingProfileSpec struct {
	// Sites are the preferences between sites, such as data centres.
	// +optional
	Sites *SitePreferences `json:"sites,omitempty"`

	// Clusters are the preferences between the clusters of a site.
	// +optional
	Clusters *ClusterChoice `json:"clusters,omitempty"`
}

// SitePreferences are preferences between sites. They apply if replicas are divided by capacity, with dynamicWeight
// or Aggregated.
type SitePreferences struct {
	// GroupBy says which clusters form a site.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Zone;Region;Provider
	// +kubebuilder:default=Region
	GroupBy SiteField `json:"groupBy,omitempty"`

	// Order says which sites are used first. With burst, elastic sites always come after the others.
	// +optional
	// +kubebuilder:validation:Enum=CheapestThatFits;AsPlaced
	// +kubebuilder:default=AsPlaced
	Order SiteOrder `json:"order,omitempty"`

	// ReservePercent is the percentage of a cluster's capacity that stays free.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	ReservePercent int32 `json:"reservePercent,omitempty"`

	// MaxSpotPercent excludes clusters with a higher percentage of spot capacity.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxSpotPercent *int32 `json:"maxSpotPercent,omitempty"`

	// Burst uses elastic sites only when the others are full.
	// +optional
	Burst *Burst `json:"burst,omitempty"`

	// Drain moves replicas out of sites step by step.
	// +optional
	Drain *Drain `json:"drain,omitempty"`
}

// SiteField is the property that groups clusters into sites.
type SiteField string

const (
	// SiteByCluster makes every cluster a site.
	SiteByCluster SiteField = "Cluster"
	// SiteByZone makes clusters in the same zones a site.
	SiteByZone SiteField = "Zone"
	// SiteByRegion makes the clusters of a region a site.
	SiteByRegion SiteField = "Region"
	// SiteByProvider makes the clusters of a provider a site.
	SiteByProvider SiteField = "Provider"
)

// SiteOrder is the order in which sites are used.
type SiteOrder string

const (
	// SitesAsPlaced keeps the order of the placement.
	SitesAsPlaced SiteOrder = "AsPlaced"
	// SitesCheapestThatFits uses the cheapest site with capacity for all replicas. If there is none, sites are used
	// in the order of their price.
	SitesCheapestThatFits SiteOrder = "CheapestThatFits"
)

// Burst uses elastic sites only when the others are full.
type Burst struct {
	// ComeBack moves replicas out of elastic sites at this pace when other sites have free capacity. Without it,
	// replicas stay until the workload is scaled down.
	// +optional
	ComeBack *Pace `json:"comeBack,omitempty"`
}

// Drain moves replicas out of sites step by step. A step starts after the previous one has finished.
type Drain struct {
	// Sites to drain, named by the field that groups them.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Sites []string `json:"sites"`

	// Pace of the drain.
	// +optional
	Pace Pace `json:"pace,omitzero"`
}

// Pace bounds how fast replicas are moved.
type Pace struct {
	// StepPercent is the number of replicas moved in one step, in percent of the workload, rounded up.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=10
	StepPercent int32 `json:"stepPercent,omitempty"`

	// Interval is the minimum time between steps.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:default="30s"
	Interval metav1.Duration `json:"interval,omitzero"`

	// MaxUnavailablePercent is the percentage of replicas that may be unready while replicas are moved, rounded
	// down but at least one replica.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=10
	MaxUnavailablePercent int32 `json:"maxUnavailablePercent,omitempty"`
}

// ClusterChoice holds preferences between the clusters of a site.
type ClusterChoice struct {
	// GatherPending keeps replicas that fit no cluster pending in one cluster that can grow, so that its autoscaler
	// acts. Without it, a workload that does not fit stays unscheduled as a whole.
	// +optional
	GatherPending bool `json:"gatherPending,omitempty"`

	// Scores are the scorers and their weights. Unlisted scorers are off, except for ClusterLocality, which has
	// weight 1.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Scores []ScoreWeight `json:"scores,omitempty"`
}

// ScoreWeight is a scorer and its weight.
type ScoreWeight struct {
	// Name of the scorer: ClusterLocality prefers clusters that already run the workload, ClusterSize those below
	// their target size, FreeResources those with the largest share of free resources, and Price the cheapest.
	// +required
	// +kubebuilder:validation:Enum=ClusterLocality;ClusterSize;FreeResources;Price
	Name string `json:"name"`

	// Weight multiplies the scores; 0 disables the scorer.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`
}
