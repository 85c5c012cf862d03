{{/* Names. Trainer wants names of RFC 1035 (a letter first, no dots), and its pods append "-node-0-0-xxxxx". */}}
{{- define "spanloom.fullname" -}}
{{- $chart := default .Chart.Name .Values.nameOverride -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name $chart) (contains $chart .Release.Name) -}}
{{- $name = regexReplaceAll "^([0-9])" ($name | replace "." "-") "r${1}" -}}
{{- $name | trunc 32 | trimSuffix "-" -}}
{{- end -}}

{{- define "spanloom.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "spanloom.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "spanloom.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "spanloom.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "spanloom.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "spanloom.claimName" -}}
{{- default (printf "%s-dataset" (include "spanloom.fullname" .)) .Values.dataset.pvc.existingClaim -}}
{{- end -}}

{{- define "spanloom.datasetRoot" -}}
{{- printf "%s/%s" .Values.dataset.mountPath .Values.dataset.path -}}
{{- end -}}

{{/* An image reference. In: dict with `image` (values) and `root`. A digest needs no tag. */}}
{{- define "spanloom.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The runtime of a TrainJob. One that this chart makes is known in the whole cluster, hence the namespace in its name. */}}
{{- define "spanloom.runtimeName" -}}
{{- if .Values.train.runtime.create -}}
{{- printf "%s-%s" .Release.Namespace (include "spanloom.fullname" .) -}}
{{- else -}}
{{- .Values.train.runtime.name -}}
{{- end -}}
{{- end -}}
