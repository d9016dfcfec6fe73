{{- define "gliner-bento.fullname" -}}
{{- $name := .Values.fullnameOverride | default (contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name)) -}}
{{- $name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "gliner-bento.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gliner-bento.labels" -}}
{{ include "gliner-bento.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "gliner-bento.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "gliner-bento.fullname" .) "default") -}}
{{- end }}

{{- define "gliner-bento.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end }}

{{/* A setting's value in the environment. Helm reads every number as a float. */}}
{{- define "gliner-bento.text" -}}
{{- if kindIs "slice" . }}{{ join "," . }}{{ else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{- define "gliner-bento.mayHaveSeveralPods" -}}
{{- if eq .Values.autoscaling.kind "none" }}{{ gt (int .Values.replicaCount) 1 }}{{ else }}{{ gt (int .Values.autoscaling.maxReplicas) 1 }}{{ end -}}
{{- end }}

{{/* What the pod needs to end, in seconds: its removal from proxies, and the requests that run. */}}
{{- define "gliner-bento.endsWithinSeconds" -}}
{{- add .Values.preStopSeconds ((.Values.settings).shutdown_timeout_s | default 25 | ceil | int) -}}
{{- end }}

{{/* Values that cannot work end the rendering with one line. */}}
{{- define "gliner-bento.check" -}}
{{- if not (or .Values.apiKeys.existingSecret .Values.allowAnonymous) }}
{{- fail "apiKeys.existingSecret: the server does not start without API keys; name a Secret with a file of them, or set allowAnonymous to serve everyone" }}
{{- end }}
{{- if and .Values.apiKeys.existingSecret .Values.allowAnonymous }}
{{- fail "allowAnonymous: contradicts apiKeys.existingSecret; with API keys every caller needs one" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled .Values.apiKeys.existingSecret (not .Values.serviceMonitor.apiKeySecret.name) }}
{{- fail "serviceMonitor.apiKeySecret.name: with API keys, /metrics needs one of scope metrics" }}
{{- end }}
{{- if and .Values.model.name (.Values.settings).models }}
{{- fail "settings.models: contradicts model.name; name all models in the setting" }}
{{- end }}
{{- with .Values.autoscaling }}
{{- if and (ne .kind "none") (gt (int .minReplicas) (int .maxReplicas)) }}
{{- fail (printf "autoscaling.maxReplicas: %d is less than minReplicas, %d" (int .maxReplicas) (int .minReplicas)) }}
{{- end }}
{{- if and (eq .kind "keda") (not .keda.prometheusAddress) }}
{{- fail "autoscaling.keda.prometheusAddress: KEDA needs the address of Prometheus" }}
{{- end }}
{{- end }}
{{- if and (or .Values.adapters.volume .Values.adapters.store) (not .Values.adapters.enabled) }}
{{- fail "adapters.enabled: a volume of adapters needs it" }}
{{- end }}
{{- $needed := include "gliner-bento.endsWithinSeconds" . | int }}
{{- with .Values.terminationGracePeriodSeconds }}
{{- if le (int .) $needed }}
{{- fail (printf "terminationGracePeriodSeconds: %d kills the server before it has ended, which takes preStopSeconds + settings.shutdown_timeout_s, %d s" (int .) $needed) }}
{{- end }}
{{- end }}
{{- end }}
