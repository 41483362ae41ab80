"""What has changed between two runs, compared with what two earlier ones differed by?"""
