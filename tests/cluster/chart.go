package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/strvals"
)

// template prints what Helm makes of a chart with these values, once its linter has nothing to complain of: the parts
// of Helm that do so, without the rest of it.
func template(arguments []string, output io.Writer) error {
	flags := flag.NewFlagSet("template", flag.ContinueOnError)
	release := flags.String("release", "svcmap", "the release's name")
	namespace := flags.String("namespace", "kube-system", "the release's namespace")
	// the linter alters what it is given
	values, forLinter := map[string]any{}, map[string]any{}
	flags.Func("set", "KEY=VALUE, as helm takes it; repeatable", func(text string) error {
		return errors.Join(strvals.ParseInto(text, values), strvals.ParseInto(text, forLinter))
	})
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	directory := flags.Arg(0)
	if err := checked(directory, *namespace, forLinter); err != nil {
		return err
	}
	chart, err := loader.Load(directory)
	if err != nil {
		return err
	}
	options := chartutil.ReleaseOptions{Name: *release, Namespace: *namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if text := rendered[name]; strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text) != "" {
			fmt.Fprintf(output, "---\n# Source: %s\n%s\n", name, text)
		}
	}
	return nil
}

// checked is what the linter says, warnings included; what is merely recommended is not.
func checked(directory, namespace string, values map[string]any) error {
	var found []error
	for _, message := range lint.AllWithKubeVersion(directory, values, namespace, nil).Messages {
		if message.Severity >= support.WarningSev {
			found = append(found, message)
		}
	}
	return errors.Join(found...)
}
