{{- define "svcmap.selector" -}}
app.kubernetes.io/name: svcmap
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "svcmap.labels" -}}
{{ include "svcmap.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "svcmap.configMap" -}}
{{ .Values.existingConfigMap | default .Release.Name }}
{{- end }}

{{- define "svcmap.config" -}}
{{- $connection := dict "kubeconfig" "/var/lib/kube-proxy/kubeconfig.conf" }}
{{- $fixed := dict "apiVersion" "kubeproxy.config.k8s.io/v1alpha1" "kind" "KubeProxyConfiguration" "clientConnection" $connection }}
{{- merge $fixed (deepCopy .Values.config) | toYaml }}
{{- end }}

{{- define "svcmap.healthPort" -}}
{{- $address := ternary "" (.Values.config.healthzBindAddress | default "") (not (empty .Values.existingConfigMap)) -}}
{{- if regexMatch ":[0-9]+$" $address }}{{ regexFind "[0-9]+$" $address }}{{ else }}10256{{ end }}
{{- end }}
