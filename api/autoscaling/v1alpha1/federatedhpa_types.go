package v1alpha1

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FederatedHPA scales a template by metrics collected from all clusters that run it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=federatedhpas,scope=Namespaced,shortName=fhpa,categories={karmada-io}
// +kubebuilder:printcolumn:name="REFERENCE-KIND",type=string,JSONPath=`.spec.scaleTargetRef.kind`
// +kubebuilder:printcolumn:name="REFERENCE-NAME",type=string,JSONPath=`.spec.scaleTargetRef.name`
// +kubebuilder:printcolumn:name="MINPODS",type=integer,JSONPath=`.spec.minReplicas`
// +kubebuilder:printcolumn:name="MAXPODS",type=integer,JSONPath=`.spec.maxReplicas`
// +kubebuilder:printcolumn:name="REPLICAS",type=integer,JSONPath=`.status.currentReplicas`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type FederatedHPA struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is scaled, by what and within which bounds.
	// +required
	Spec FederatedHPASpec `json:"spec"`

	// Status is what was measured and decided.
	// +optional
	Status autoscalingv2.HorizontalPodAutoscalerStatus `json:"status,omitzero"`
}

// FederatedHPAList is a list of FederatedHPA.
//
// +kubebuilder:object:root=true
type FederatedHPAList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []FederatedHPA `json:"items"`
}

// FederatedHPASpec is the spec of a HorizontalPodAutoscaler, for a template.
//
// +kubebuilder:validation:XValidation:rule="self.minReplicas <= self.maxReplicas",fieldPath=".minReplicas",message="minReplicas must not exceed maxReplicas"
type FederatedHPASpec struct {
	// ScaleTargetRef is the template.
	// +required
	ScaleTargetRef autoscalingv2.CrossVersionObjectReference `json:"scaleTargetRef"`

	// MinReplicas is the lower bound over all clusters.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=1
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas is the upper bound over all clusters.
	// +required
	// +kubebuilder:validation:Minimum=1
	MaxReplicas int32 `json:"maxReplicas"`

	// Metrics ask for numbers of replicas; the largest wins. Without any, CPU utilisation is held at 80 percent.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:default={{type: "Resource", resource: {name: "cpu", target: {type: "Utilization", averageUtilization: 80}}}}
	// +kubebuilder:validation:XValidation:rule="self.all(m, (m.type == 'Object') == has(m.object) && (m.type == 'Pods') == has(m.pods) && (m.type == 'Resource') == has(m.resource) && (m.type == 'ContainerResource') == has(m.containerResource) && (m.type == 'External') == has(m.external))",message="metrics: type must name the one source that is given"
	Metrics []autoscalingv2.MetricSpec `json:"metrics,omitempty"`

	// Behavior bounds how fast the template is scaled.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(!has(self.scaleUp) || !has(self.scaleUp.stabilizationWindowSeconds) || (self.scaleUp.stabilizationWindowSeconds >= 0 && self.scaleUp.stabilizationWindowSeconds <= 3600)) && (!has(self.scaleDown) || !has(self.scaleDown.stabilizationWindowSeconds) || (self.scaleDown.stabilizationWindowSeconds >= 0 && self.scaleDown.stabilizationWindowSeconds <= 3600))",message="behavior: stabilizationWindowSeconds must be from 0 to 3600"
	// +kubebuilder:validation:XValidation:rule="(!has(self.scaleUp) || !has(self.scaleUp.policies) || self.scaleUp.policies.all(p, p.value > 0 && p.periodSeconds > 0 && p.periodSeconds <= 1800)) && (!has(self.scaleDown) || !has(self.scaleDown.policies) || self.scaleDown.policies.all(p, p.value > 0 && p.periodSeconds > 0 && p.periodSeconds <= 1800))",message="behavior: policies need a positive value and periodSeconds from 1 to 1800"
	Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior,omitempty"`
}
