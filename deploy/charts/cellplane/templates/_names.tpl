{{- define "cellplane.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of a PriorityClass: (dict "root" $ "class" "store"). It has no namespace, so its name says in which the installation is. */}}
{{- define "cellplane.priorityClass" -}}
{{ include "cellplane.fullname" .root }}-{{ .root.Release.Namespace }}-{{ .class }}
{{- end -}}

{{/* Labels of an object: (dict "root" $ "component" "etcd" "plane" "hub"), plane may be missing. */}}
{{- define "cellplane.labels" -}}
{{ include "cellplane.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: cellplane
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "cellplane.selector" -}}
app.kubernetes.io/name: cellplane
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .plane }}
cellplane.io/control-plane: {{ . }}
{{- end }}
{{- end -}}

{{/* The image of a program: (dict "root" $ "image" "etcd" "key" "etcd"). */}}
{{- define "cellplane.image" -}}
{{- $image := index .root.Values.images .key -}}
{{- if $image.digest -}}
{{ .root.Values.images.prefix }}/{{ .image }}@{{ $image.digest }}
{{- else -}}
{{ .root.Values.images.prefix }}/{{ .image }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The host name of a Service. */}}
{{- define "cellplane.host" -}}
{{ include "cellplane.fullname" .root }}-{{ .service }}.{{ .root.Release.Namespace }}.svc
{{- end -}}

{{/* The hub and the cells, with all their fields. */}}
{{- define "cellplane.planes" -}}
{{- $planes := list (mergeOverwrite (deepCopy .Values.hub) (dict "name" "hub" "role" "hub")) -}}
{{- $seen := dict -}}
{{- range .Values.cells -}}
{{- if hasKey $seen .name }}{{ fail (printf "two cells are called %s" .name) }}{{ end -}}
{{- $_ := set $seen .name true -}}
{{- $planes = append $planes (mergeOverwrite (deepCopy $.Values.cellDefaults) (deepCopy .) (dict "role" "cell")) -}}
{{- end -}}
{{- toYaml $planes -}}
{{- end -}}

{{/* The URLs of the etcd members of a control plane, as JSON: (dict "root" $ "plane" plane). */}}
{{- define "cellplane.etcd.urls" -}}
{{- $urls := list -}}
{{- $service := printf "%s-%s-etcd" (include "cellplane.fullname" .root) .plane.name -}}
{{- range $i := until (int .plane.etcd.replicas) -}}
{{- $urls = append $urls (printf "https://%s-%d.%s.%s.svc:2379" $service $i $service $.root.Release.Namespace) -}}
{{- end -}}
{{- toJson $urls -}}
{{- end -}}

{{- define "cellplane.gateway.url" -}}
{{- if .Values.gateway.url -}}
{{- .Values.gateway.url -}}
{{- else -}}
https://{{ include "cellplane.host" (dict "root" . "service" "gateway") }}:{{ .Values.gateway.service.port }}
{{- end -}}
{{- end -}}
