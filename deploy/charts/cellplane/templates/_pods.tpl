{{/*
What all pods have in common: (dict "root" $ "component" "etcd" "plane" "hub" "class" "store"). They need nothing of the cluster's
API, and satisfy the Pod Security Standard "restricted".
*/}}
{{- define "cellplane.pod" -}}
serviceAccountName: {{ include "cellplane.fullname" .root }}
automountServiceAccountToken: false
{{ include "cellplane.pod.anywhere" . }}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: {{ .root.Values.topologySpread.whenUnsatisfiable }}
  labelSelector:
    matchLabels: {{- include "cellplane.selector" . | nindent 6 }}
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "cellplane.selector" . | nindent 6 }}
{{- end -}}

{{- define "cellplane.pod.anywhere" -}}
enableServiceLinks: false
{{- $classes := .root.Values.priorityClasses }}
{{- if $classes.create }}
priorityClassName: {{ include "cellplane.priorityClass" . }}
{{- else }}
{{- with index $classes (printf "%sName" .class) }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* Fields of a container: (dict "root" $ "image" "etcd" "key" "etcd" "resources" …). */}}
{{- define "cellplane.container" -}}
image: {{ include "cellplane.image" . }}
imagePullPolicy: {{ .root.Values.images.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- with .resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Probes at a port: (dict "port" "https" "scheme" "HTTPS" "live" "/livez" "ready" "/readyz"). A start may take ten minutes. */}}
{{- define "cellplane.probes" -}}
startupProbe:
  httpGet: {path: {{ .live }}, port: {{ .port }}, scheme: {{ .scheme }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 300
livenessProbe:
  httpGet: {path: {{ .live }}, port: {{ .port }}, scheme: {{ .scheme }}}
  periodSeconds: 10
  timeoutSeconds: 15
  failureThreshold: 8
readinessProbe:
  httpGet: {path: {{ .ready }}, port: {{ .port }}, scheme: {{ .scheme }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{/*
The volume at /etc/cellplane: a directory for each Secret, and kubeconfigs, which have no secrets but refer to these files.
(dict "root" $ "secrets" (list "gateway") "authorities" (list "hub-front-proxy") "kubeconfigs" (list "gateway")). Of authorities, only the
certificate of the CA is mounted. With "plane" the kubeconfigs are those of a control plane.
*/}}
{{- define "cellplane.volume" -}}
- name: etc
  projected:
    defaultMode: 0440
    sources:
    {{- range .secrets }}
    - secret:
        name: {{ include "cellplane.fullname" $.root }}-{{ . }}
        items:
        - {key: ca.crt, path: {{ . }}/ca.crt}
        - {key: tls.crt, path: {{ . }}/tls.crt}
        - {key: tls.key, path: {{ . }}/tls.key}
    {{- end }}
    {{- range .authorities }}
    - secret:
        name: {{ include "cellplane.fullname" $.root }}-{{ . }}
        items:
        - {key: ca.crt, path: {{ . }}/ca.crt}
    {{- end }}
    {{- with .kubeconfigs }}
    - configMap:
        name: {{ include "cellplane.kubeconfigs.name" (dict "root" $.root "plane" $.plane) }}
        items:
        {{- range . }}
        - {key: {{ . }}.kubeconfig, path: {{ . }}.kubeconfig}
        {{- end }}
    {{- end }}
    {{- with .configuration }}
    - configMap:
        name: {{ include "cellplane.fullname" $.root }}-configuration
        items:
        - {key: {{ . }}, path: {{ . }}}
    {{- end }}
{{- end -}}

{{/* A PodDisruptionBudget that lets one pod go at a time: (dict "root" $ "component" "etcd" "plane" "hub" "name" "hub-etcd"). */}}
{{- define "cellplane.pdb" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "cellplane.fullname" .root }}-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "cellplane.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "cellplane.selector" . | nindent 6 }}
{{- end -}}
