{{/* Stoker's image. */}}
{{- define "stoker.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The probe's image. */}}
{{- define "stoker.probeImage" -}}
{{- .Values.probes.image | default (printf "%s-probe:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion)) -}}
{{- end -}}

{{/* The Secret with the server's certificate. */}}
{{- define "stoker.tlsSecret" -}}
{{- if eq .Values.tls.mode "existingSecret" }}{{ .Values.tls.existingSecret }}{{ else }}stoker-tls{{ end -}}
{{- end -}}

{{/* The text of the policy; empty where a ConfigMap of the user's has it. */}}
{{- define "stoker.policy" -}}
{{- if not .Values.policy.existingConfigMap -}}
{{- if .Values.policy.inline -}}
{{ .Values.policy.inline | trim }}
{{- else if eq .Values.supplier.kind "simulated" -}}
{{ .Files.Get "files/policy.yaml" | trim }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The keys of a Secret with certificates, as the files that Stoker and the autoscaler name. */}}
{{- define "stoker.secretItems" -}}
{{- $cert := eq .root.Values.tls.mode "certManager" -}}
- {key: ca.crt, path: ca.crt}
- {key: {{ $cert | ternary "tls.crt" (printf "%s.crt" .name) }}, path: {{ .name }}.crt}
- {key: {{ $cert | ternary "tls.key" (printf "%s.key" .name) }}, path: {{ .name }}.key}
{{- end -}}

{{/* A map in flow style, as people write it: {cpu: 100m, memory: 128Mi}. */}}
{{- define "stoker.flow" -}}
{{- $all := list -}}
{{- range $key, $value := . -}}
{{- $all = append $all (printf "%s: %s" $key (regexMatch "^[0-9.]+$" (toString $value) | ternary (toString $value | quote) (toString $value))) -}}
{{- end -}}
{{- printf "{%s}" (join ", " $all) -}}
{{- end -}}
