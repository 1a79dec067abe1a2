package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/spf13/pflag"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
	"k8s.io/kubernetes/pkg/proxy/apis/config"
	"k8s.io/kubernetes/pkg/proxy/metrics"
)

// tell prints what kube-proxy calls things: a line for each flag and for each field of its configuration, and then the
// metrics of its mode nftables as Prometheus reads them, with a series each.
func tell(output io.Writer) error {
	app.NewProxyCommand().Flags().VisitAll(func(flag *pflag.Flag) { fmt.Fprintln(output, "flag", flag.Name) })
	fields(output, reflect.TypeFor[v1alpha1.KubeProxyConfiguration](), "")
	metrics.RegisterMetrics(config.ProxyModeNFTables)
	observe()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return err
	}
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(output, family); err != nil {
			return err
		}
	}
	return nil
}

// fields are those of a type, with the paths to them. What is written as one value is no group.
func fields(output io.Writer, group reflect.Type, path string) {
	for i := range group.NumField() {
		field := group.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		isValue := reflect.PointerTo(field.Type).Implements(reflect.TypeFor[json.Marshaler]())
		switch {
		case strings.Contains(options, "inline"):
			fields(output, field.Type, path)
		case field.Type.Kind() == reflect.Struct && !isValue:
			fields(output, field.Type, path+name+".")
		default:
			fmt.Fprintln(output, "field", path+name)
		}
	}
}

// observe gives every metric that has labels a series: without one it would not be told.
func observe() {
	const family = "IPv4"
	metrics.SyncProxyRulesLatency.WithLabelValues(family).Observe(0)
	metrics.SyncFullProxyRulesLatency.WithLabelValues(family).Observe(0)
	metrics.SyncPartialProxyRulesLatency.WithLabelValues(family).Observe(0)
	metrics.NetworkProgrammingLatency.WithLabelValues(family).Observe(0)
	metrics.ReconcileConntrackFlowsLatency.WithLabelValues(family).Observe(0)
	metrics.SyncProxyRulesLastTimestamp.WithLabelValues(family).Set(0)
	metrics.SyncProxyRulesLastQueuedTimestamp.WithLabelValues(family).Set(0)
	metrics.NFTablesSyncFailuresTotal.WithLabelValues(family).Add(0)
	metrics.NFTablesCleanupFailuresTotal.WithLabelValues(family).Add(0)
	metrics.ReconcileConntrackFlowsDeletedEntriesTotal.WithLabelValues(family).Add(0)
	metrics.SyncProxyRulesNoLocalEndpointsTotal.WithLabelValues("internal", family).Set(0)
	metrics.ProxyHealthzTotal.WithLabelValues("200").Add(0)
	metrics.ProxyLivezTotal.WithLabelValues("200").Add(0)
	clientmetrics.RequestResult.Increment(context.Background(), "200", "GET", "server")
	clientmetrics.RequestLatency.Observe(context.Background(), "GET", url.URL{Host: "server"}, 0)
}
