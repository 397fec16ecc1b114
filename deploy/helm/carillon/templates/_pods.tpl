{{/* The labels of one kind of pod: (dict "root" $ "part" "doors"). A selector never changes, so it holds no version. */}}
{{- define "carillon.selector" -}}
app.kubernetes.io/name: carillon
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "carillon.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}

{{/* The labels of everything that belongs to a release. */}}
{{- define "carillon.labels" -}}
app.kubernetes.io/name: carillon
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: carillon-{{ .Chart.Version }}
{{- end -}}

{{/* One deployment, its budget and its autoscaler: (dict "root" $ "part" "doors" "roles" "doors,upkeep" "pods" .Values.doors).

`helm upgrade --reuse-values` brings the values of an older chart: what it did not know is empty here. */}}
{{- define "carillon.pods" -}}
{{- $values := .root.Values -}}
{{- $name := printf "%s-%s" (include "carillon.name" .root) .part -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels:
    {{- include "carillon.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .part }}
spec:
  {{- if not (.pods.autoscaling).maxReplicas }}
  replicas: {{ .pods.replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "carillon.selector" . | nindent 6 }}
  strategy:
    # A new pod is ready before an old one ends.
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  template:
    metadata:
      labels:
        {{- include "carillon.selector" . | nindent 8 }}
      annotations:
        # Changed settings replace the pods; a changed secret does not: restart the deployments yourself.
        carillon/settings: {{ printf "%s%s" (toYaml $values.settings) $values.config | sha256sum }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "carillon.name" .root }}
      automountServiceAccountToken: false
      {{- with $values.image.pullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      # If a pod is killed sooner, its routes wait until their leases expire.
      terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        seccompProfile: {type: RuntimeDefault}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "carillon.selector" . | nindent 14 }}
      containers:
        - name: carillon
          image: "{{ $values.image.repository }}:{{ $values.image.tag | default .root.Chart.AppVersion }}"
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args: ["serve", "--roles", {{ .pods.roles | default .roles | quote }}]
          envFrom:
            - configMapRef: {name: {{ include "carillon.name" .root }}}
            - secretRef: {name: {{ $values.existingSecret }}}
          {{- if $values.config }}
          env:
            - {name: CARILLON_CONFIG, value: /etc/carillon/carillon.toml}
          {{- end }}
          ports:
            - {name: http, containerPort: 8080}
          # At its start a pod may migrate the ledger, or wait for another pod that does: give it five minutes.
          startupProbe:
            httpGet: {path: /readyz, port: http}
            periodSeconds: 2
            failureThreshold: 150
          readinessProbe:
            httpGet: {path: /readyz, port: http}
            periodSeconds: 5
            timeoutSeconds: 3
          # Checks only whether the process answers: killing pods does not bring a database back.
          livenessProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          lifecycle:
            preStop:
              # Wait until every node has stopped sending connections to this pod; then SIGTERM lets it drain.
              exec: {command: ["sleep", "5"]}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: ["ALL"]}
          resources:
            {{- toYaml .pods.resources | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            - {name: data, mountPath: /data}
            {{- if $values.config }}
            - {name: config, mountPath: /etc/carillon/carillon.toml, subPath: carillon.toml, readOnly: true}
            {{- end }}
            {{- if $values.secretFiles }}
            - {name: secrets, mountPath: /etc/carillon/secrets, readOnly: true}
            {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumes:
        - name: tmp
          emptyDir: {}
        # The ledger is in PostgreSQL; this is only the working folder of the process.
        - name: data
          emptyDir: {}
        {{- if $values.config }}
        - name: config
          configMap:
            name: {{ include "carillon.name" .root }}-file
        {{- end }}
        {{- with $values.secretFiles }}
        - name: secrets
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  labels:
    {{- include "carillon.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .part }}
spec:
  # Kubernetes may evict one pod at a time, and can drain a node even if there is only one replica.
  maxUnavailable: 1
  # A pod that does not get ready, for want of its database for instance, does not keep a node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "carillon.selector" . | nindent 6 }}
{{- with .pods.autoscaling }}
{{- if .maxReplicas }}
{{- if lt (int .maxReplicas) (int $.pods.replicas) }}
{{- fail (printf "%s.autoscaling.maxReplicas: %d is fewer than %s.replicas, %d" $.part (int .maxReplicas) $.part (int $.pods.replicas)) }}
{{- end }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $name }}
  labels:
    {{- include "carillon.labels" $.root | nindent 4 }}
    app.kubernetes.io/component: {{ $.part }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ $name }}}
  minReplicas: {{ $.pods.replicas }}
  maxReplicas: {{ .maxReplicas }}
  metrics:
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ .cpuPercent | default 70 }}}}
  behavior:
    # A pod that ends drains its calls first: take them away one after the other.
    scaleDown: {policies: [{type: Pods, value: 1, periodSeconds: 120}]}
{{- end }}
{{- end }}
{{- end -}}
