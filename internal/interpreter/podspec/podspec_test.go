package podspec

import (
	"runtime"
	"strings"
	"testing"

	"github.com/cellplane/cellplane/internal/interpreter/fixture"
)

func TestDependencies(t *testing.T) {
	cases := map[string]struct{ spec, want string }{
		"config map volume":      {`volumes: [{configMap: {name: x}}]`, "ConfigMap/x"},
		"secret volume":          {`volumes: [{secret: {secretName: x}}]`, "Secret/x"},
		"projected":              {`volumes: [{projected: {sources: [{configMap: {name: c}}, {secret: {name: s}}, {serviceAccountToken: {}}]}}]`, "ConfigMap/c Secret/s"},
		"claim":                  {`volumes: [{persistentVolumeClaim: {claimName: x}}]`, "PersistentVolumeClaim/x"},
		"azure file":             {`volumes: [{azureFile: {secretName: x}}]`, "Secret/x"},
		"cephfs":                 {`volumes: [{cephfs: {secretRef: {name: x}}}]`, "Secret/x"},
		"cinder":                 {`volumes: [{cinder: {secretRef: {name: x}}}]`, "Secret/x"},
		"csi":                    {`volumes: [{csi: {nodePublishSecretRef: {name: x}}}]`, "Secret/x"},
		"flex":                   {`volumes: [{flexVolume: {secretRef: {name: x}}}]`, "Secret/x"},
		"iscsi":                  {`volumes: [{iscsi: {secretRef: {name: x}}}]`, "Secret/x"},
		"rbd":                    {`volumes: [{rbd: {secretRef: {name: x}}}]`, "Secret/x"},
		"scaleio":                {`volumes: [{scaleIO: {secretRef: {name: x}}}]`, "Secret/x"},
		"storageos":              {`volumes: [{storageos: {secretRef: {name: x}}}]`, "Secret/x"},
		"pull secrets":           {`imagePullSecrets: [{name: x}]`, "Secret/x"},
		"env":                    {`containers: [{env: [{name: a, valueFrom: {configMapKeyRef: {name: c}}}, {valueFrom: {secretKeyRef: {name: s}}}, {value: x}]}]`, "ConfigMap/c Secret/s"},
		"envFrom":                {`containers: [{envFrom: [{configMapRef: {name: c}}, {secretRef: {name: s}}]}]`, "ConfigMap/c Secret/s"},
		"init container":         {`initContainers: [{envFrom: [{configMapRef: {name: c}}]}]`, "ConfigMap/c"},
		"ephemeral container":    {`ephemeralContainers: [{envFrom: [{configMapRef: {name: c}}]}]`, "ConfigMap/c"},
		"service account":        {`serviceAccountName: x`, "ServiceAccount/x"},
		"old name of it":         {`serviceAccount: x`, "ServiceAccount/x"},
		"default account":        {`serviceAccountName: default`, ""},
		"ephemeral volume":       {`volumes: [{ephemeral: {volumeClaimTemplate: {}}}, {emptyDir: {}}]`, ""},
		"nothing":                {`{}`, ""},
		"duplicates, and sorted": {`{serviceAccountName: s, volumes: [{secret: {secretName: z}}, {secret: {secretName: a}}, {secret: {secretName: z}}, {configMap: {name: z}}]}`, "ConfigMap/z Secret/a Secret/z ServiceAccount/s"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			refs, err := Dependencies(fixture.Object(t, tc.spec).Object, "ns")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, ref := range refs {
				if ref.APIVersion != "v1" || ref.Namespace != "ns" {
					t.Errorf("got %+v", ref)
				}
				got = append(got, ref.Kind+"/"+ref.Name)
			}
			if strings.Join(got, " ") != tc.want {
				t.Fatalf("got %v, want %s", got, tc.want)
			}
		})
	}
}

func TestErrorsNameTheField(t *testing.T) {
	for spec, want := range map[string]string{
		`volumes: [{}, {projected: {sources: [{}, {secret: {name: 1}}]}}]`: "volumes[1].projected.sources[1].secret.name: expected a string, found a number",
		`containers: [{env: [{valueFrom: {secretKeyRef: x}}]}]`:            "containers[0].env[0].valueFrom.secretKeyRef: expected an object, found a string",
		`containers: {}`:         "containers: expected a list, found an object",
		`imagePullSecrets: [x]`:  "imagePullSecrets[0]: expected an object, found a string",
		`serviceAccountName: []`: "serviceAccountName: expected a string, found a list",
	} {
		if _, err := Dependencies(fixture.Object(t, spec).Object, ""); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", spec, err, want)
		}
	}
	for spec, want := range map[string]string{
		`containers: [{}, {resources: {requests: {cpu: lots}}}]`: "containers[1].resources.requests.cpu: not a quantity such as 500m or 1Gi",
		`containers: [{resources: {limits: {cpu: []}}}]`:         "containers[0].resources.limits.cpu: expected a quantity",
		`initContainers: [{restartPolicy: 1}]`:                   "initContainers[0].restartPolicy: expected a string, found a number",
		`overhead: x`:                                            "overhead: expected an object, found a string",
		`nodeSelector: {a: 1}`:                                   "nodeSelector.a: expected a string, found a number",
		`tolerations: [{tolerationSeconds: x}]`:                  "tolerations[0]: ",
		`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: x}}}`: "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: ",
	} {
		if _, err := Requirements(fixture.Object(t, spec).Object, ""); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", spec, err, want)
		}
	}
}

func TestQuantity(t *testing.T) {
	for _, tc := range []struct {
		value any
		want  string
	}{{"500m", "500m"}, {int64(2), "2"}, {0.5, "500m"}, {"1e3", "1e3"}, {"2E", "2E"}, {"1Gi", "1Gi"}} {
		if q, err := Quantity(tc.value); err != nil || q.String() != tc.want {
			t.Errorf("%v is %s, %v, want %s", tc.value, q.String(), err, tc.want)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, value := range []any{"1e1000000000", "1e-1000000000", "1E+999999999", strings.Repeat("9", 1000), "", "x", nil, []any{}, "1e", "0x1"} {
		if q, err := Quantity(value); err == nil {
			t.Errorf("%v was accepted as %s", value, q.String())
		}
	}
	runtime.ReadMemStats(&after)
	if total := (after.TotalAlloc - before.TotalAlloc) >> 20; total > 1 {
		t.Errorf("refusing quantities allocated %d MiB", total)
	}
}
