"""The proving ground of the advice: pairs of trainings, and how close the predictions come to their measurements."""
