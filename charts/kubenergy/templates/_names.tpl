{{/* Names are fixed, because there is only one KubEnergy in a cluster and the name of its namespace is compiled in. */}}
{{- define "kubenergy.namespace" -}}
{{- if not (semverCompare ">=1.36.0-0 <1.38.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "Kubernetes %s is not supported: want 1.36 or 1.37. Jobs are held by MutatingAdmissionPolicy v1, which older versions do not serve, and the scheduler is kube-scheduler 1.36, which may be at most one minor version older than the API server. docs/explanation/will-it-work.md lists what works with other versions" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if not (and .Values.ledger .Values.api) -}}
{{- fail "values of this release are missing: upgrade with --reset-then-reuse-values in place of --reuse-values" -}}
{{- end -}}
{{- if ne .Release.Namespace "kubenergy-system" -}}
{{- fail (printf "KubEnergy must be installed in the namespace kubenergy-system, not in %s: its programs and policies know that name. Use --namespace kubenergy-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
kubenergy-system
{{- end -}}

{{/* Namespace of the agents, which require a less restrictive Pod Security level than the other components. */}}
{{- define "kubenergy.agentNamespace" -}}
kubenergy-agent
{{- end -}}

{{/* Common labels. Expects a dict with root and component. */}}
{{- define "kubenergy.labels" -}}
app.kubernetes.io/name: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/part-of: kubenergy
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{/* Reference of an image. Expects a dict with root and image. */}}
{{- define "kubenergy.image" -}}
{{- $name := .image.repository -}}
{{- with .root.Values.image.registry }}{{ $name = printf "%s/%s" (trimSuffix "/" .) $name }}{{ end -}}
{{- if .image.digest }}{{ $name }}@{{ .image.digest }}{{ else }}{{ $name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* Security contexts of pods and containers for the restricted Pod Security Standard. */}}
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

{{/* Scheduling settings of a pod. Expects the values of the component. */}}
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

{{/* Spread replicas over nodes and zones if possible. */}}
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

{{/* URLs of the HTTP API of the controller and of the endpoint for agents. */}}
{{- define "kubenergy.api" -}}
https://kubenergy-controller.{{ include "kubenergy.namespace" . }}.svc:9443
{{- end -}}

{{- define "kubenergy.batches" -}}
{{ include "kubenergy.api" . }}/api/v1/batches
{{- end -}}

{{/* Volume with the CA certificate of the API. It is optional because pods may start before the controller writes it. */}}
{{- define "kubenergy.authority" -}}
{{- if .Values.api.tlsSecret -}}
secret: {secretName: {{ .Values.api.tlsSecret }}, defaultMode: 0444, items: [{key: ca.crt, path: ca.crt}]}
{{- else -}}
configMap: {name: kubenergy-ca, optional: true}
{{- end -}}
{{- end -}}

{{/* Node labels that the controller sets from the reports of agents. */}}
{{- define "kubenergy.toldLabels" -}}
kubenergy.io/cpu-model kubenergy.io/cpu-sockets kubenergy.io/cpu-cores kubenergy.io/gpu-model kubenergy.io/gpu-count kubenergy.io/machine kubenergy.io/cloud kubenergy.io/instance-type
{{- end -}}
