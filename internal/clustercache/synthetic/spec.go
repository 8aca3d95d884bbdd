package synthetic

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func (w workload) spec(one individual, spec *corev1.PodSpec) {
	access := "kube-api-access-" + one.access
	*spec = corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: new(int64(30)),
		DNSPolicy:                     corev1.DNSClusterFirst,
		ServiceAccountName:            w.name,
		DeprecatedServiceAccount:      w.name,
		NodeName:                      one.node,
		SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: new(true), FSGroup: new(int64(10001))},
		SchedulerName:                 "default-scheduler",
		Priority:                      new(int32(0)),
		EnableServiceLinks:            new(true),
		PreemptionPolicy:              new(corev1.PreemptLowerPriority),
		Tolerations: []corev1.Toleration{
			{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
		},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: w.name + "-config"}, DefaultMode: new(int32(420))}}},
			{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: w.name + "-tls", DefaultMode: new(int32(420))}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			accessVolume(access),
		},
	}
	// What the workload's pods have in common comes from the workload's own numbers.
	shared := random("spec", w.number)
	for c := range w.containers {
		spec.Containers = append(spec.Containers, w.container(shared, c, access))
	}
}

func (w workload) container(r *rand.Rand, c int, access string) corev1.Container {
	name := [...]string{w.name, "istio-proxy", "metrics-exporter"}[c]
	image := fmt.Sprintf("registry.example.com/%s/%s:%s", w.team, w.name, w.version)
	if c > 0 {
		image = [...]string{"", "docker.io/istio/proxyv2:1.24.2", "quay.io/prometheus/statsd-exporter:v0.28.0"}[c]
	}
	memory := int64(64 << 20 * (1 + r.IntN(32)))
	container := corev1.Container{
		Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Ports: []corev1.ContainerPort{{Name: fmt.Sprint("http-", c), ContainerPort: int32(8080 + c), Protocol: corev1.ProtocolTCP},
			{Name: fmt.Sprint("metrics-", c), ContainerPort: int32(9090 + c), Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(50*(1+r.IntN(20))), resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI)},
			Limits: corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(2*memory, resource.BinarySI)},
		},
		LivenessProbe:            probe("/healthz", 8080+c),
		ReadinessProbe:           probe("/ready", 8080+c),
		TerminationMessagePath:   "/dev/termination-log",
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/" + name, ReadOnly: true},
			{Name: "tls", MountPath: "/etc/tls", ReadOnly: true},
			{Name: access, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
		},
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
	}
	if c > 0 {
		// Sidecars are injected, and smaller.
		container.LivenessProbe = nil
		container.Env = []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "SERVICE_NAME", Value: w.name}}
		return container
	}
	container.Env = []corev1.EnvVar{
		{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
		{Name: "DATABASE_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: w.name + "-database"}, Key: "password"}}},
		{Name: "DATABASE_URL", Value: fmt.Sprintf("postgres://%s@%s-db.%s.svc:5432/%s?sslmode=verify-full", w.name, w.name, w.namespace, letters(r, 8))},
		{Name: "OTEL_EXPORTER_OTLP_ENDPOINT", Value: "http://otel-collector.observability.svc:4317"},
		{Name: "LOG_LEVEL", Value: pick(r, []string{"info", "debug", "warn"})},
		{Name: "GOMAXPROCS", Value: fmt.Sprint(1 + r.IntN(8))},
		{Name: "FEATURE_" + pick(r, featureFlags), Value: fmt.Sprint(r.IntN(2) == 0)},
	}
	return container
}

func probe(path string, port int) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(int32(port)), Scheme: corev1.URISchemeHTTP}},
		TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
}

func accessVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(420)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace",
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
		}}}}
}
