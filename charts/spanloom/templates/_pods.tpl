{{/* Parts of a pod that the fetch Job and the TrainJob share. YAML numbers reach templates as floats, hence int64. */}}
{{- define "spanloom.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: {{ .Values.security.runAsUser | int64 }}
runAsGroup: {{ .Values.security.runAsGroup | int64 }}
fsGroup: {{ .Values.security.fsGroup | int64 }}
{{- /* Without this the kubelet changes the owner of every file at every start. */}}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "spanloom.containerSecurityContext" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* In: a map of names and values. Sorted, so that equal values give equal text. */}}
{{- define "spanloom.env" -}}
{{- range $name := keys . | sortAlpha }}
- name: {{ $name }}
  value: {{ get $ $name | quote }}
{{- end }}
{{- end -}}

{{- define "spanloom.imagePullSecrets" -}}
{{- range .Values.imagePullSecrets }}
- name: {{ . }}
{{- end }}
{{- end -}}

{{/* A volume that can be written. In: dict with `name`, `claim` (empty: scratch) and `sizeLimit`. */}}
{{- define "spanloom.writableVolume" -}}
- name: {{ .name }}
  {{- if .claim }}
  persistentVolumeClaim:
    claimName: {{ .claim }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ .sizeLimit }}
  {{- end }}
{{- end -}}
