{{/* The dataset as a volume that nothing can write through: read-only as a volume and again as a mount. */}}
{{- define "spanloom.datasetReadOnly" -}}
- name: dataset
  {{- if eq .Values.dataset.volume "pvc" }}
  persistentVolumeClaim:
    claimName: {{ include "spanloom.claimName" . }}
    readOnly: true
  {{- else }}
  csi:
    driver: gcsfuse.csi.storage.gke.io
    readOnly: true
    volumeAttributes:
      bucketName: {{ .Values.dataset.gcsFuse.bucket | quote }}
      mountOptions: {{ include "spanloom.gcsFuseOptions" . | quote }}
      {{- range $name := keys .Values.dataset.gcsFuse.volumeAttributes | sortAlpha }}
      {{ $name }}: {{ get $.Values.dataset.gcsFuse.volumeAttributes $name | quote }}
      {{- end }}
  {{- end }}
{{- end -}}

{{/* Published objects have no directory objects above them, hence implicit-dirs; gcsfuse shows files as one user's. */}}
{{- define "spanloom.gcsFuseOptions" -}}
{{- $own := list "implicit-dirs" (printf "uid=%d" (int64 .Values.security.runAsUser)) (printf "gid=%d" (int64 .Values.security.fsGroup)) -}}
{{- concat $own .Values.dataset.gcsFuse.mountOptions | join "," -}}
{{- end -}}

{{/* The driver's webhook adds its sidecar to pods that carry the first. */}}
{{- define "spanloom.gcsFuseAnnotations" -}}
gke-gcsfuse/volumes: "true"
{{- range $name := keys .Values.dataset.gcsFuse.podAnnotations | sortAlpha }}
{{ $name }}: {{ get $.Values.dataset.gcsFuse.podAnnotations $name | quote }}
{{- end }}
{{- end -}}
