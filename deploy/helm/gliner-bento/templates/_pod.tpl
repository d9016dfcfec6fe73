{{- define "gliner-bento.env" -}}
- {name: HOME, value: /tmp}
- {name: BENTOML_HOME, value: /tmp/bentoml}
- {name: BENTOML_DO_NOT_TRACK, value: "True"}
- {name: XDG_CACHE_HOME, value: /cache}
- {name: HF_HOME, value: /cache/huggingface}
{{- if .Values.apiKeys.existingSecret }}
- {name: GLINER_API_KEYS, value: {{ printf "/etc/gliner-bento/keys/%s" .Values.apiKeys.secretKey | quote }}}
{{- else }}
- {name: GLINER_ALLOW_ANONYMOUS, value: "true"}
{{- end }}
{{- with .Values.model }}
{{- if ($.Values.settings).models }}
{{- else if .volume }}
- {name: GLINER_MODEL, value: {{ list "/models" .name | compact | join "/" | quote }}}
{{- else if .name }}
- {name: GLINER_MODEL, value: {{ .name | quote }}}
{{- end }}
{{- with .tokenSecret }}
{{- if .name }}
- name: GLINER_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ .name }}, key: {{ .key }}}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.adapters }}
{{- if .enabled }}
- {name: GLINER_ENABLE_LORA, value: "true"}
{{- end }}
{{- if .volume }}
- {name: GLINER_ADAPTER_ROOT, value: /adapters}
{{- end }}
{{- if .store }}
- {name: GLINER_DISK_CACHE_DIR, value: /adapter-store}
{{- end }}
{{- end }}
{{- if .Values.services }}
- {name: GLINER_CONFIG, value: /etc/gliner-bento/configuration/configuration.yaml}
{{- end }}
{{- range $name, $value := .Values.settings }}
- {name: GLINER_{{ upper $name }}, value: {{ include "gliner-bento.text" $value | quote }}}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gliner-bento.volumeMounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: cache, mountPath: /cache}
{{- if .Values.apiKeys.existingSecret }}
- {name: keys, mountPath: /etc/gliner-bento/keys, readOnly: true}
{{- end }}
{{- if .Values.services }}
- {name: configuration, mountPath: /etc/gliner-bento/configuration, readOnly: true}
{{- end }}
{{- if .Values.model.volume }}
- {name: models, mountPath: /models, readOnly: true}
{{- end }}
{{- if .Values.adapters.volume }}
- {name: adapters, mountPath: /adapters, readOnly: true}
{{- end }}
{{- if .Values.adapters.store }}
- {name: adapter-store, mountPath: /adapter-store}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gliner-bento.volumes" -}}
- name: tmp
  {{- toYaml .Values.tmp | nindent 2 }}
- name: cache
  {{- toYaml .Values.cache | nindent 2 }}
{{- with .Values.apiKeys.existingSecret }}
- name: keys
  secret: {secretName: {{ . }}, defaultMode: 0440, optional: false}
{{- end }}
{{- if .Values.services }}
- name: configuration
  configMap: {name: {{ include "gliner-bento.fullname" . }}}
{{- end }}
{{- with .Values.model.volume }}
- name: models
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.adapters.volume }}
- name: adapters
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.adapters.store }}
- name: adapter-store
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
