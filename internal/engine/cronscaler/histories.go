package cronscaler

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
)

// usualLimit is how many runs of a rule are kept if it does not say.
const usualLimit = 3

// historyOf returns the history of a rule, with all that is left of it by its limits.
func historyOf(status *autoscalingv1alpha1.CronFederatedHPAStatus, rule *autoscalingv1alpha1.CronFederatedHPARule) autoscalingv1alpha1.ExecutionHistory {
	history := autoscalingv1alpha1.ExecutionHistory{RuleName: rule.Name}
	for i := range status.ExecutionHistories {
		if status.ExecutionHistories[i].RuleName == rule.Name {
			history = *status.ExecutionHistories[i].DeepCopy()
		}
	}
	trim(&history, rule)
	return history
}

// record adds a run to a history, the newest first.
func record(history *autoscalingv1alpha1.ExecutionHistory, rule *autoscalingv1alpha1.CronFederatedHPARule, due, now time.Time, failure error) {
	scheduled, executed := ptr.To(metav1.NewTime(due)), ptr.To(metav1.NewTime(now))
	if failure != nil {
		run := autoscalingv1alpha1.FailedExecution{ScheduleTime: scheduled, ExecutionTime: executed, Message: failure.Error()}
		history.FailedExecutions = append([]autoscalingv1alpha1.FailedExecution{run}, history.FailedExecutions...)
	} else {
		run := autoscalingv1alpha1.SuccessfulExecution{
			ScheduleTime: scheduled, ExecutionTime: executed,
			AppliedReplicas: rule.TargetReplicas, AppliedMinReplicas: rule.TargetMinReplicas, AppliedMaxReplicas: rule.TargetMaxReplicas,
		}
		history.SuccessfulExecutions = append([]autoscalingv1alpha1.SuccessfulExecution{run}, history.SuccessfulExecutions...)
	}
	trim(history, rule)
}

func trim(history *autoscalingv1alpha1.ExecutionHistory, rule *autoscalingv1alpha1.CronFederatedHPARule) {
	successes, failures := ptr.Deref(rule.SuccessfulHistoryLimit, usualLimit), ptr.Deref(rule.FailedHistoryLimit, usualLimit)
	history.SuccessfulExecutions = history.SuccessfulExecutions[:min(len(history.SuccessfulExecutions), int(successes))]
	history.FailedExecutions = history.FailedExecutions[:min(len(history.FailedExecutions), int(failures))]
}
