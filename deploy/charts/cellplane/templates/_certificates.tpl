{{/* The certificate authorities, as a list of names of Secrets. Also the keys for tokens of service accounts are made like them. */}}
{{- define "cellplane.authorities" -}}
{{- range include "cellplane.planes" . | fromYamlArray }}
{{ include "cellplane.plane.authorities" .name }}
{{- end }}
{{- end -}}

{{- define "cellplane.plane.authorities" -}}
- {{ . }}-ca
- {{ . }}-etcd-ca
- {{ . }}-front-proxy-ca
- {{ . }}-service-accounts
{{- end -}}

{{/*
The certificates. Each gets a Secret with ca.crt, tls.crt and tls.key. With hosts it is for a server, otherwise, or with client, for a client. Those of a
control plane say so.
*/}}
{{- define "cellplane.certificates" -}}
{{- $root := . -}}
{{- range $plane := include "cellplane.planes" . | fromYamlArray }}
- name: {{ .name }}-apiserver
  plane: {{ .name }}
  authority: {{ .name }}-ca
  commonName: kube-apiserver
  hosts:
  - kubernetes
  - kubernetes.default
  - kubernetes.default.svc
  {{- include "cellplane.hosts" (dict "root" $root "service" (printf "%s-apiserver" .name)) | nindent 2 }}
- name: {{ .name }}-etcd
  plane: {{ .name }}
  authority: {{ .name }}-etcd-ca
  commonName: etcd
  client: true
  hosts:
  {{- /* No wildcard: etcd looks the names up to check the addresses of its peers. */}}
  {{- $service := printf "%s-%s-etcd" (include "cellplane.fullname" $root) .name }}
  {{- range $i := until (int .etcd.replicas) }}
  - {{ $service }}-{{ $i }}.{{ $service }}.{{ $root.Release.Namespace }}.svc
  {{- end }}
  - localhost
  - 127.0.0.1
- name: {{ .name }}-etcd-client
  plane: {{ .name }}
  authority: {{ .name }}-etcd-ca
  commonName: cellplane
- name: {{ .name }}-front-proxy
  plane: {{ .name }}
  authority: {{ .name }}-front-proxy-ca
  commonName: cellplane-gateway
- name: {{ .name }}-admin
  plane: {{ .name }}
  authority: {{ .name }}-ca
  commonName: cellplane-admin
  organizations: ["system:masters"]
- name: {{ .name }}-engine
  plane: {{ .name }}
  authority: {{ .name }}-ca
  commonName: system:cellplane:engine
- name: {{ .name }}-engine-elsewhere
  plane: {{ .name }}
  authority: hub-ca
  commonName: system:cellplane:engine:{{ .name }}
{{- end }}
{{- if .Values.monitoring.serviceMonitors.enabled }}
{{- /* API servers let this group read metrics and health, and nothing else. */}}
{{- range $plane := include "cellplane.planes" . | fromYamlArray }}
- name: {{ .name }}-metrics-client
  plane: {{ .name }}
  authority: {{ .name }}-ca
  commonName: system:cellplane:metrics
  organizations: ["system:monitoring"]
{{- end }}
- name: metrics
  authority: hub-ca
  commonName: cellplane-metrics
  hosts:
  - {{ include "cellplane.fullname" $root }}-metrics.{{ $root.Release.Namespace }}.svc
{{- end }}
- name: controllers
  authority: hub-ca
  commonName: system:kube-controller-manager
  client: true
  hosts: [localhost, 127.0.0.1]
- name: hub-manager
  authority: hub-ca
  commonName: system:cellplane:hub-manager
- name: gateway
  authority: hub-ca
  commonName: system:cellplane:gateway
  client: true
  hosts:
  {{- include "cellplane.hosts" (dict "root" $root "service" "gateway") | nindent 2 }}
  {{- with .Values.gateway.url }}
  - {{ (urlParse .).hostname | quote }}
  {{- end }}
  {{- range .Values.gateway.hosts }}
  - {{ . | quote }}
  {{- end }}
- name: cluster-gateway
  authority: hub-ca
  commonName: system:cellplane:cluster-gateway
  client: true
  hosts:
  {{- $service := printf "%s-cluster-gateway" (include "cellplane.fullname" $root) }}
  - "*.{{ $service }}.{{ $root.Release.Namespace }}.svc"
  - localhost
  - 127.0.0.1
{{- end -}}

{{- define "cellplane.hosts" -}}
{{- $service := printf "%s-%s" (include "cellplane.fullname" .root) .service -}}
- {{ $service }}
- {{ $service }}.{{ .root.Release.Namespace }}
- {{ $service }}.{{ .root.Release.Namespace }}.svc
- localhost
- 127.0.0.1
{{- end -}}
