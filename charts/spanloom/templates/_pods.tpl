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

{{/* The pod that fetches the dataset: of the Job, and of the runtime's dataset initializer. In: dict with `root`,
`uri`, and where they differ the container's `name` and further `env`. */}}
{{- define "spanloom.fetchPod" -}}
{{- $fetch := .root.Values.fetch -}}
restartPolicy: Never
serviceAccountName: {{ include "spanloom.serviceAccountName" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with include "spanloom.imagePullSecrets" .root }}
imagePullSecrets: {{- . | trim | nindent 2 }}
{{- end }}
securityContext: {{- include "spanloom.podSecurityContext" .root | nindent 2 }}
containers:
  - name: {{ default "fetch" .name }}
    image: {{ include "spanloom.image" (dict "image" $fetch.image "root" .root) }}
    imagePullPolicy: {{ $fetch.image.pullPolicy }}
    command: [spanloom, fetch, {{ .uri | quote }}, {{ include "spanloom.datasetRoot" .root | quote }}]
    {{- with include "spanloom.env" (merge (dict) (default (dict) .env) $fetch.env) }}
    env: {{- . | trim | nindent 6 }}
    {{- end }}
    {{- with $fetch.envFromSecret }}
    envFrom:
      - secretRef:
          name: {{ . }}
    {{- end }}
    resources: {{- toYaml $fetch.resources | nindent 6 }}
    securityContext: {{- include "spanloom.containerSecurityContext" .root | nindent 6 }}
    volumeMounts:
      - name: dataset
        mountPath: {{ .root.Values.dataset.mountPath }}
      - name: scratch
        mountPath: /scratch
      - name: tmp
        mountPath: /tmp
volumes:
  - name: dataset
    persistentVolumeClaim:
      claimName: {{ include "spanloom.claimName" .root }}
  - name: scratch
    emptyDir: {}
  - name: tmp
    emptyDir: {}
{{- with $fetch.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $fetch.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
