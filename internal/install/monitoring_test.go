package install

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/scrape"
)

// monitored are values with everything for Prometheus and Grafana.
const monitored = `
networkPolicies: {metricsFrom: [{podSelector: {matchLabels: {app: prometheus}}}]}
monitoring:
  serviceMonitors: {enabled: true, labels: {release: prometheus}, interval: 15s}
  alerts: {enabled: true, labels: {release: prometheus}}
  dashboards: {enabled: true}
`

// ofOperator reports whether an object is for the operator of Prometheus, whose CRDs cannot be had as a module. TestServiceMonitors and TestAlerts of
// internal/metriclist check these.
func ofOperator(object *unstructured.Unstructured) bool {
	return object.GroupVersionKind().Group == "monitoring.coreos.com"
}

// serviceMonitor is what the chart uses of a ServiceMonitor. Other fields are refused.
type serviceMonitor struct {
	Spec struct {
		JobLabel          string `json:"jobLabel"`
		NamespaceSelector struct {
			MatchNames []string `json:"matchNames"`
		} `json:"namespaceSelector"`
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		Endpoints []struct {
			Port, Path, Interval, Scheme string
			TLSConfig                    struct {
				ServerName string `json:"serverName"`
				CA, Cert   struct{ Secret corev1.SecretKeySelector }
				KeySecret  corev1.SecretKeySelector `json:"keySecret"`
			} `json:"tlsConfig"`
			Relabelings []struct {
				TargetLabel string `json:"targetLabel"`
				Replacement string `json:"replacement"`
			} `json:"relabelings"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// TestServiceMonitors follows each ServiceMonitor to its Service and pods, and checks that Prometheus may connect, and has a certificate that lets it read
// metrics and nothing else.
func TestServiceMonitors(t *testing.T) {
	services := map[string]*corev1.Service{}
	pods := map[string]*corev1.PodTemplateSpec{} // by component and control plane
	clients := map[string][]string{}             // organizations of client certificates
	servers := map[string][]string{}             // Secrets of servers, by name of the host
	var monitors []*unstructured.Unstructured
	for _, object := range rendered(t, Release{Name: "cp", Namespace: "fed", Values: values(t, monitored)}) {
		if object.GetName() == "cp-federation" {
			for _, c := range federation(t, object).Certificates {
				if len(c.Hosts) == 0 {
					clients[c.Secret] = c.Organizations
				}
				for _, host := range c.Hosts {
					servers[host] = append(servers[host], c.Secret)
				}
			}
		}
		if template := podOf(t, object); template != nil {
			pods[template.Labels["app.kubernetes.io/component"]+"/"+template.Labels["cellplane.io/control-plane"]] = template
		}
		switch object.GetKind() {
		case "ServiceMonitor":
			monitors = append(monitors, object)
		case "Service":
			service := &corev1.Service{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, service); err != nil {
				t.Fatal(err)
			}
			services[service.Name] = service
		}
	}
	policies, _ := networkOf(t, monitored)
	scraped := map[string]bool{}
	for _, object := range monitors {
		var monitor serviceMonitor
		data, err := json.Marshal(object.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		strict := json.NewDecoder(bytes.NewReader(data))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&monitor.Spec); err != nil {
			t.Fatalf("%s: %v", object.GetName(), err)
		}
		if object.GetLabels()["release"] != "prometheus" || !slices.Equal(monitor.Spec.NamespaceSelector.MatchNames, []string{"fed"}) || len(monitor.Spec.Endpoints) != 1 {
			t.Errorf("%s: %+v", object.GetName(), monitor.Spec)
			continue
		}
		endpoint := monitor.Spec.Endpoints[0]
		var selected *corev1.Service
		for _, service := range services {
			if labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels)) {
				if selected != nil {
					t.Errorf("%s selects %s and %s", object.GetName(), selected.Name, service.Name)
				}
				selected = service
			}
		}
		if selected == nil || selected.Spec.Ports[0].Name != endpoint.Port || endpoint.Path != "/metrics" || endpoint.Interval != "15s" {
			t.Errorf("%s selects no Service, or another port: %+v", object.GetName(), endpoint)
			continue
		}
		component, plane := selected.Labels[monitor.Spec.JobLabel], selected.Labels["cellplane.io/control-plane"]
		name := component + "/" + plane
		template := pods[name]
		if template == nil || !labels.SelectorFromSet(selected.Spec.Selector).Matches(labels.Set(template.Labels)) {
			t.Errorf("%s: no pods for the selector %v", object.GetName(), selected.Spec.Selector)
			continue
		}
		scraped[name] = true
		if plane != "" && (len(endpoint.Relabelings) != 1 || endpoint.Relabelings[0].TargetLabel != "plane" || endpoint.Relabelings[0].Replacement != plane) {
			t.Errorf("%s does not give the label plane: %+v", object.GetName(), endpoint.Relabelings)
		}
		var port int32
		for _, candidate := range template.Spec.Containers[0].Ports {
			if candidate.Name == selected.Spec.Ports[0].TargetPort.StrVal {
				port = candidate.ContainerPort
			}
		}
		for from, want := range map[string]bool{"prometheus": true, "stranger": component == "gateway"} {
			if got := permits(t, policies, labels.Set{"app": from}, template.Labels, port); port == 0 || got != want {
				t.Errorf("%s may connect to %s at %d: %t", from, name, port, got)
			}
		}
		if component == "etcd" {
			continue // without TLS
		}
		secret := endpoint.TLSConfig.KeySecret.Name
		if endpoint.Scheme != "https" || !slices.Equal(clients[secret], []string{scrape.Group}) || endpoint.TLSConfig.CA.Secret.Name != secret || endpoint.TLSConfig.Cert.Secret.Name != secret {
			t.Errorf("%s has the certificate %s of %v: %+v", object.GetName(), secret, clients[secret], endpoint.TLSConfig)
		}
		if !slices.ContainsFunc(servers[endpoint.TLSConfig.ServerName], func(server string) bool { return mounts(template, server) }) {
			t.Errorf("%s expects the server %s, and the pods do not have such a certificate", object.GetName(), endpoint.TLSConfig.ServerName)
		}
	}
	for name := range pods {
		if component, _, _ := strings.Cut(name, "/"); component != "federate" && component != "test" && !scraped[name] {
			t.Errorf("%s is not monitored", name)
		}
	}
}

func mounts(template *corev1.PodTemplateSpec, secret string) bool {
	for _, volume := range template.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.Secret != nil && source.Secret.Name == secret {
				return true
			}
		}
	}
	return false
}

// TestMonitoringIsAnOption expects nothing for Prometheus by default, and with it the alerts and dashboards of the release.
func TestMonitoringIsAnOption(t *testing.T) {
	const group = "monitoring.coreos.com/v1"
	for _, object := range rendered(t, Release{Name: "cp", Namespace: "fed"}) {
		data, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if object.GetAPIVersion() == group || strings.Contains(string(data), "metrics-tls") || strings.Contains(string(data), "metrics-client") || strings.Contains(object.GetName(), "dashboard") {
			t.Errorf("%s %s is for Prometheus", object.GetKind(), object.GetName())
		}
	}
	var rules, dashboards int
	for _, object := range rendered(t, Release{Name: "cp", Namespace: "fed", Values: values(t, monitored)}) {
		if object.GetKind() == "PrometheusRule" {
			data, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if text := string(data); strings.Contains(text, "cellplane-system") || strings.Count(text, `namespace=\"fed\"`) < 20 || object.GetLabels()["release"] != "prometheus" {
				t.Errorf("the alerts are not about this release: %s", text)
			}
			rules++
		}
		if object.GetKind() == "ConfigMap" && object.GetLabels()["grafana_dashboard"] == "1" {
			content, _, _ := unstructured.NestedStringMap(object.Object, "data")
			for name, text := range content {
				if !strings.HasSuffix(name, ".json") || !strings.Contains(text, `"panels"`) || !strings.Contains(text, "{{") {
					t.Errorf("%s is no dashboard: %.100s", name, text)
				}
			}
			dashboards++
		}
	}
	if rules != 1 || dashboards < 5 {
		t.Errorf("there are %d PrometheusRules and %d dashboards", rules, dashboards)
	}
	_, err := Render(Release{Name: "cp", Namespace: "fed", Values: values(t, `monitoring: {serviceMonitors: {enabled: true}}`)})
	if err == nil || !strings.Contains(err.Error(), "needs networkPolicies.metricsFrom") {
		t.Errorf("without networkPolicies.metricsFrom: %v", err)
	}
	for _, name := range []string{"PrometheusRule", "ServiceMonitor"} {
		if !slices.ContainsFunc(kinds, func(kind schema.GroupVersionKind) bool { return kind.Kind == name }) {
			t.Errorf("objects of kind %s are not deleted with the release", name)
		}
	}
}
