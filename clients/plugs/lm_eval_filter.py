"""lm-evaluation-harness: a filter that keeps the elected one of repeated responses."""

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter

from unprm_client import Client
from unprm_client.errors import NoAnswer

client = Client("http://127.0.0.1:8000")


@register_filter("elected")
class Elected(Filter):
    """The response that a vote elects; `field`: that of the problem in a document."""

    def __init__(self, strategy=None, field="question"):
        self.strategy, self.field = strategy, field

    def apply(self, resps, docs):
        return [[self.elect(doc[self.field], sorted(responses))] for responses, doc in zip(resps, docs, strict=True)]

    def elect(self, problem, responses):
        try:
            return responses[client.vote(problem, responses, self.strategy).solution_index]
        except NoAnswer:
            return responses[0]
