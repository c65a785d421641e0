{{/* Names are fixed: there is one KubEnergy in a cluster, in a namespace whose name is compiled in. */}}
{{- define "kubenergy.namespace" -}}
{{- if not (and .Values.ledger .Values.api) -}}
{{- fail "values of this release are missing: upgrade with --reset-then-reuse-values in place of --reuse-values" -}}
{{- end -}}
{{- if ne .Release.Namespace "kubenergy-system" -}}
{{- fail (printf "KubEnergy must be installed in the namespace kubenergy-system, not in %s: its programs and policies know that name. Use --namespace kubenergy-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
kubenergy-system
{{- end -}}

{{/* Where agents are, and nothing else: their pods need more of Pod Security than those of the rest. */}}
{{- define "kubenergy.agentNamespace" -}}
kubenergy-agent
{{- end -}}

{{/* Labels of everything; give a dict of root and component. */}}
{{- define "kubenergy.labels" -}}
app.kubernetes.io/name: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/part-of: kubenergy
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{/* Reference of an image; give a dict of root and image. */}}
{{- define "kubenergy.image" -}}
{{- $name := .image.repository -}}
{{- with .root.Values.image.registry }}{{ $name = printf "%s/%s" (trimSuffix "/" .) $name }}{{ end -}}
{{- if .image.digest }}{{ $name }}@{{ .image.digest }}{{ else }}{{ $name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* What the restricted Pod Security Standard asks of pods, and of containers. */}}
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

{{/* What differs by cluster in a pod; give the component's values. */}}
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

{{/* Replicas on several nodes and in several zones, where there are several. */}}
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

{{/* The HTTP API of the controller, and where agents push to. */}}
{{- define "kubenergy.api" -}}
https://kubenergy-controller.{{ include "kubenergy.namespace" . }}.svc:9443
{{- end -}}

{{- define "kubenergy.batches" -}}
{{ include "kubenergy.api" . }}/api/v1/batches
{{- end -}}

{{/* The volume with what the API is known by. The controller writes the ConfigMap when it starts: pods may start before. */}}
{{- define "kubenergy.authority" -}}
{{- if .Values.api.tlsSecret -}}
secret: {secretName: {{ .Values.api.tlsSecret }}, defaultMode: 0444, items: [{key: ca.crt, path: ca.crt}]}
{{- else -}}
configMap: {name: kubenergy-ca, optional: true}
{{- end -}}
{{- end -}}

{{/* Labels of nodes that the controller writes as agents tell them. */}}
{{- define "kubenergy.toldLabels" -}}
kubenergy.io/cpu-model kubenergy.io/cpu-sockets kubenergy.io/cpu-cores kubenergy.io/gpu-model kubenergy.io/gpu-count kubenergy.io/machine kubenergy.io/cloud kubenergy.io/instance-type
{{- end -}}
