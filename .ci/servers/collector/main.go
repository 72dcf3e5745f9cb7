// A collector of OpenTelemetry for tests: the real receiver of OTLP, and an exporter that writes what it got to a file, as a line of
// JSON for each batch.
package main

import (
	"context"
	"log"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

type config struct {
	Path string `mapstructure:"path"`
}

type lines struct {
	component.StartFunc
	component.ShutdownFunc
	mutex sync.Mutex
	path  string
}

func (*lines) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (l *lines) write(line []byte, err error) error {
	if err != nil {
		return err
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(append(line, '\n'))
	return err
}

func (l *lines) ConsumeTraces(_ context.Context, traces ptrace.Traces) error {
	return l.write((&ptrace.JSONMarshaler{}).MarshalTraces(traces))
}

func (l *lines) ConsumeMetrics(_ context.Context, metrics pmetric.Metrics) error {
	return l.write((&pmetric.JSONMarshaler{}).MarshalMetrics(metrics))
}

func newLines() exporter.Factory {
	traces := func(_ context.Context, _ exporter.Settings, c component.Config) (exporter.Traces, error) {
		return &lines{path: c.(*config).Path}, nil
	}
	metrics := func(_ context.Context, _ exporter.Settings, c component.Config) (exporter.Metrics, error) {
		return &lines{path: c.(*config).Path}, nil
	}
	return exporter.NewFactory(component.MustNewType("lines"), func() component.Config { return &config{} },
		exporter.WithTraces(traces, component.StabilityLevelStable),
		exporter.WithMetrics(metrics, component.StabilityLevelStable))
}

func factories() (otelcol.Factories, error) {
	receivers, err := otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
	if err != nil {
		return otelcol.Factories{}, err
	}
	exporters, err := otelcol.MakeFactoryMap[exporter.Factory](newLines())
	return otelcol.Factories{Receivers: receivers, Exporters: exporters, Telemetry: otelconftelemetry.NewFactory()}, err
}

func main() {
	settings := otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector", Description: "a collector for tests", Version: "1"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{
			ResolverSettings: confmap.ResolverSettings{
				DefaultScheme:     "file",
				ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
			},
		},
	}
	if err := otelcol.NewCommand(settings).Execute(); err != nil {
		log.Fatal(err)
	}
}
