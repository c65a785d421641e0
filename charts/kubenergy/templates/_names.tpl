{{/* Names are fixed, because a cluster has one KubEnergy, in a namespace with a compiled-in name. */}}
{{- define "kubenergy.namespace" -}}
{{- if not (and .Values.ledger .Values.api) -}}
{{- fail "values of this release are missing: upgrade with --reset-then-reuse-values in place of --reuse-values" -}}
{{- end -}}
{{- if ne .Release.Namespace "kubenergy-system" -}}
{{- fail (printf "KubEnergy must be installed in the namespace kubenergy-system, not in %s: its programs and policies know that name. Use --namespace kubenergy-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
kubenergy-system
{{- end -}}

{{/* Namespace of the agents only, because their pods require a higher Pod Security level. */}}
{{- define "kubenergy.agentNamespace" -}}
kubenergy-agent
{{- end -}}

{{/* Labels of all objects; the argument is a dict with root and component. */}}
{{- define "kubenergy.labels" -}}
app.kubernetes.io/name: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/part-of: kubenergy
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{/* Reference of an image; the argument is a dict with root and image. */}}
{{- define "kubenergy.image" -}}
{{- $name := .image.repository -}}
{{- with .root.Values.image.registry }}{{ $name = printf "%s/%s" (trimSuffix "/" .) $name }}{{ end -}}
{{- if .image.digest }}{{ $name }}@{{ .image.digest }}{{ else }}{{ $name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* Settings of pods and containers for the restricted Pod Security Standard. */}}
{{- define "kubenergy.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "kubenergy.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Cluster-specific settings of a pod; the argument is the values of the component. */}}
{{- define "kubenergy.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Spreads replicas over nodes and zones, if there are several. */}}
{{- define "kubenergy.spread" -}}
topologySpreadConstraints:
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- topologyKey: {{ . }}
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      app.kubernetes.io/name: {{ $.component }}
{{- end }}
{{- end -}}

{{/* URL of the controller's HTTP API, and destination of the agents. */}}
{{- define "kubenergy.api" -}}
https://kubenergy-controller.{{ include "kubenergy.namespace" . }}.svc:9443
{{- end -}}

{{- define "kubenergy.batches" -}}
{{ include "kubenergy.api" . }}/api/v1/batches
{{- end -}}

{{/* Volume with the CA of the API. The controller writes the ConfigMap when it starts, which may be after other pods. */}}
{{- define "kubenergy.authority" -}}
{{- if .Values.api.tlsSecret -}}
secret: {secretName: {{ .Values.api.tlsSecret }}, defaultMode: 0444, items: [{key: ca.crt, path: ca.crt}]}
{{- else -}}
configMap: {name: kubenergy-ca, optional: true}
{{- end -}}
{{- end -}}

{{/* Node labels with hardware reported by agents, which the controller writes. */}}
{{- define "kubenergy.toldLabels" -}}
kubenergy.io/cpu-model kubenergy.io/cpu-sockets kubenergy.io/cpu-cores kubenergy.io/gpu-model kubenergy.io/gpu-count kubenergy.io/machine kubenergy.io/cloud kubenergy.io/instance-type
{{- end -}}
