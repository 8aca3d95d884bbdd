package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SchedulingProfile says how clusters are preferred among those that a placement allows. A policy chooses one by the
// annotation cellplane.io/scheduling-profile or by its schedulerName. Without one placements mean what they always did.
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

	// Spec is the preferences.
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

// SchedulingProfileSpec is how clusters are preferred: sites first, then the clusters of a site.
type SchedulingProfileSpec struct {
	// Sites are the preferences between data centres.
	// +optional
	Sites *SitePreferences `json:"sites,omitempty"`

	// Clusters are the preferences between the clusters of a site.
	// +optional
	Clusters *ClusterChoice `json:"clusters,omitempty"`
}

// SitePreferences are the preferences between data centres. They work where replicas are divided by capacity: with
// dynamicWeight or Aggregated.
type SitePreferences struct {
	// GroupBy says what makes clusters one site.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Zone;Region;Provider
	// +kubebuilder:default=Region
	GroupBy SiteField `json:"groupBy,omitempty"`

	// Order is which sites are filled first. Elastic sites always come after the others if burst is given.
	// +optional
	// +kubebuilder:validation:Enum=CheapestThatFits;AsPlaced
	// +kubebuilder:default=AsPlaced
	Order SiteOrder `json:"order,omitempty"`

	// ReservePercent of what a cluster can hold stays free.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	ReservePercent int32 `json:"reservePercent,omitempty"`

	// MaxSpotPercent keeps off clusters that consist of spot capacity to a higher share.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxSpotPercent *int32 `json:"maxSpotPercent,omitempty"`

	// Burst uses elastic sites only when the others are full.
	// +optional
	Burst *Burst `json:"burst,omitempty"`

	// Drain empties sites step by step.
	// +optional
	Drain *Drain `json:"drain,omitempty"`
}

// SiteField is what makes clusters one site.
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

// SiteOrder is which sites are filled first.
type SiteOrder string

const (
	// SitesAsPlaced leaves it to the placement.
	SitesAsPlaced SiteOrder = "AsPlaced"
	// SitesCheapestThatFits takes the cheapest site with room for all replicas, and if there is none, fills sites from
	// the cheapest on.
	SitesCheapestThatFits SiteOrder = "CheapestThatFits"
)

// Burst uses elastic sites only when the others are full.
type Burst struct {
	// ComeBack moves replicas out of elastic sites when the others have room again, at this pace. Without it they stay
	// until the workload shrinks.
	// +optional
	ComeBack *Pace `json:"comeBack,omitempty"`
}

// Drain empties sites step by step. A step waits until the one before has settled.
type Drain struct {
	// Sites to empty, named by the field that they are grouped by.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Sites []string `json:"sites"`

	// Pace is how fast.
	// +optional
	Pace Pace `json:"pace,omitzero"`
}

// Pace bounds how replicas are moved.
type Pace struct {
	// StepPercent is how many replicas move in one step, in percent of the workload, rounded up.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=10
	StepPercent int32 `json:"stepPercent,omitempty"`

	// Interval is the least time between steps.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:default="30s"
	Interval metav1.Duration `json:"interval,omitzero"`

	// MaxUnavailablePercent of the replicas may be not ready while replicas are moved, rounded down but at least one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=10
	MaxUnavailablePercent int32 `json:"maxUnavailablePercent,omitempty"`
}

// ClusterChoice are the preferences between the clusters of a site.
type ClusterChoice struct {
	// GatherPending lets replicas that fit nowhere wait in one cluster that can grow, so that its autoscaler acts,
	// instead of leaving the whole workload unscheduled.
	// +optional
	GatherPending bool `json:"gatherPending,omitempty"`

	// Scores are the scorers and their weights; those that are not listed count once, as by default, if they are
	// ClusterLocality, and not at all otherwise.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Scores []ScoreWeight `json:"scores,omitempty"`
}

// ScoreWeight is a scorer and how much it counts.
type ScoreWeight struct {
	// Name of the scorer: ClusterLocality prefers clusters that run the workload, ClusterSize those below their target
	// size, FreeResources those with the largest share of free resources, and Price the cheapest.
	// +required
	// +kubebuilder:validation:Enum=ClusterLocality;ClusterSize;FreeResources;Price
	Name string `json:"name"`

	// Weight multiplies its scores; 0 turns it off.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`
}
