// Package columns formats member objects as the Table rows that kubectl prints: the columns of an API server, and the cluster.
package columns

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Printer formats rows of one kind.
type Printer struct {
	// Columns are the column definitions. The second is the cluster.
	Columns []metav1.TableColumnDefinition
	// Cells returns the cells of an object's row.
	Cells func(object runtime.Object, cluster string, now time.Time) []any
}

// For returns the printer for objects of a kind.
func For(kind string) Printer {
	switch kind {
	case "Pod":
		return Printer{podColumns, cells(podCells)}
	case "Node":
		return Printer{nodeColumns, cells(nodeCells)}
	case "Event":
		return Printer{eventColumns, cells(eventCells)}
	case "ReplicaSet":
		return Printer{replicaSetColumns, cells(replicaSetCells)}
	case "WorkloadMetrics":
		return Printer{workloadMetricsColumns, cells(workloadMetricsCells)}
	default:
		return Printer{otherColumns, func(object runtime.Object, cluster string, now time.Time) []any {
			described, ok := object.(metav1.Object)
			if !ok {
				return []any{"", cluster, ""}
			}
			return []any{described.GetName(), cluster, age(described.GetCreationTimestamp(), now)}
		}}
	}
}

func cells[T runtime.Object](make func(T, string, time.Time) []any) func(runtime.Object, string, time.Time) []any {
	return func(object runtime.Object, cluster string, now time.Time) []any {
		return make(object.(T), cluster, now)
	}
}

// Wide columns are shown with -o wide only.
const (
	narrow = 0
	wide   = 1
)

func text(name string, priority int32, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Priority: priority, Description: description}
}

func number(name string, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description}
}

var (
	nameColumn    = metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: "The name of the object, unique in its namespace."}
	clusterColumn = text("Cluster", narrow, "The member cluster that the object is in. What is not in a member yet has none.")
	ageColumn     = text("Age", narrow, "How long ago the object was created.")
	otherColumns  = []metav1.TableColumnDefinition{nameColumn, clusterColumn, ageColumn}
)

// age returns the time since t.
func age(at metav1.Time, now time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(at.Time))
}

func orNone(value string) string {
	if value == "" {
		return "<none>"
	}
	return value
}

var replicaSetColumns = []metav1.TableColumnDefinition{
	nameColumn, clusterColumn,
	number("Desired", "How many pods are wanted."),
	number("Current", "How many pods there are."),
	number("Ready", "How many pods are ready."),
	ageColumn,
	text("Containers", wide, "The names of the containers."),
	text("Images", wide, "The images of the containers."),
	text("Selector", wide, "Which pods are counted."),
}

func replicaSetCells(set *appsv1.ReplicaSet, cluster string, now time.Time) []any {
	desired := int32(1)
	if set.Spec.Replicas != nil {
		desired = *set.Spec.Replicas
	}
	containers, images := containersOf(set.Spec.Template.Spec.Containers)
	return []any{
		set.Name, cluster, int64(desired), int64(set.Status.Replicas), int64(set.Status.ReadyReplicas), age(set.CreationTimestamp, now),
		containers, images, metav1.FormatLabelSelector(set.Spec.Selector),
	}
}

func containersOf(containers []corev1.Container) (names, images string) {
	for i, container := range containers {
		if i > 0 {
			names, images = names+",", images+","
		}
		names, images = names+container.Name, images+container.Image
	}
	return names, images
}

var eventColumns = []metav1.TableColumnDefinition{
	text("Last Seen", narrow, "How long ago the event was last seen."),
	clusterColumn,
	text("Type", narrow, "Whether it is normal or a warning."),
	text("Reason", narrow, "Why it happened, in a word."),
	text("Object", narrow, "What it is about."),
	text("Subobject", wide, "The part of the object that it is about."),
	text("Source", wide, "Who has seen it."),
	text("Message", narrow, "What happened."),
	text("First Seen", wide, "How long ago it was first seen."),
	{Name: "Count", Type: "integer", Priority: wide, Description: "How often it was seen."},
	{Name: "Name", Type: "string", Format: "name", Priority: wide, Description: nameColumn.Description},
}

func eventCells(event *corev1.Event, cluster string, now time.Time) []any {
	first := event.FirstTimestamp
	if first.IsZero() {
		first = metav1.NewTime(event.EventTime.Time)
	}
	last, count := event.LastTimestamp, int64(event.Count)
	if event.Series != nil {
		last, count = metav1.NewTime(event.Series.LastObservedTime.Time), int64(event.Series.Count)
	}
	if last.IsZero() {
		last = first
	}
	if count == 0 {
		count = 1
	}
	source := event.Source.Component
	if source == "" {
		source = event.ReportingController
	}
	host := event.Source.Host
	if host == "" && event.Source.Component == "" {
		host = event.ReportingInstance
	}
	if host != "" {
		source += ", " + host
	}
	about := event.InvolvedObject.Name
	if kind := event.InvolvedObject.Kind; kind != "" {
		about = lower(kind) + "/" + about
	}
	return []any{
		age(last, now), cluster, event.Type, event.Reason, about, event.InvolvedObject.FieldPath, source, event.Message,
		age(first, now), count, event.Name,
	}
}

func lower(kind string) string {
	b := []byte(kind)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func itoa(n int) string { return strconv.Itoa(n) }
