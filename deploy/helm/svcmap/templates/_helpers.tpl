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
